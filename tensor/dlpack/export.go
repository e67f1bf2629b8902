package dlpack

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ashlar-go/ashlar/compute/backend"
	"github.com/ashlar-go/ashlar/tensor"
)

// An export is a structure that a consumer holds, with the memory to which its pointers point. The map of exports keeps
// it reachable, and pins keeps it from moving.
type export struct {
	managed Managed // managed or legacy is used
	legacy  Legacy
	shape   [backend.MaxRank]int64
	strides [backend.MaxRank]int64
	storage *tensor.Storage
	pins    runtime.Pinner
}

// exports are the structures that were not yet deleted, by address. No other lock is taken while mu is held.
var exports = struct {
	mu   sync.Mutex
	live map[uintptr]*export
}{live: map[uintptr]*export{}}

// Export waits for the work that writes t and returns a structure over its elements. It keeps the storage until its
// deleter is called; t itself may be released before. The error matches ErrDevice if t is neither on the host nor on an
// NVIDIA GPU, or is an error of the device.
func Export(t *tensor.Tensor) (*Managed, error) {
	e, dl, err := prepare(t)
	if err != nil {
		return nil, err
	}
	e.managed = Managed{Version: Version{Major, Minor}, Deleter: deleter(), Tensor: dl}
	e.register(e.managed.Address())
	return &e.managed, nil
}

// ExportLegacy is Export for consumers that use DLManagedTensor.
func ExportLegacy(t *tensor.Tensor) (*Legacy, error) {
	e, dl, err := prepare(t)
	if err != nil {
		return nil, err
	}
	e.legacy = Legacy{Tensor: dl, Deleter: deleter()}
	e.register(e.legacy.Address())
	return &e.legacy, nil
}

// prepare waits for t and describes it.
func prepare(t *tensor.Tensor) (*export, Tensor, error) {
	p := t.Place()
	info := p.Device().Info()
	dl := Tensor{Device: Device{Type: CPU}, NDim: int32(t.Rank()), DType: typeOf(t.DType())}
	switch info.Driver {
	case "host":
	case "cuda":
		dl.Device = Device{CUDA, int32(info.Ordinal)}
	default:
		return nil, dl, fmt.Errorf("dlpack: export %s on %v, a device without a DLPack type: %w", t.Brief(), p,
			ErrDevice)
	}
	t.Pin() // until Pointer fixes the address: a move after the wait below may not have finished
	defer t.Unpin()
	if err := t.Use(p.Stream(), false); err != nil {
		return nil, dl, fmt.Errorf("dlpack: export %s: %w", t.Brief(), err)
	}
	if err := p.Sync(context.Background()); err != nil {
		return nil, dl, fmt.Errorf("dlpack: export %s: %w", t.Brief(), err)
	}
	e := &export{storage: t.Storage().Retain()}
	for i, length := range t.Shape() {
		e.shape[i] = int64(length)
	}
	for i, stride := range t.Strides() {
		e.strides[i] = int64(stride)
	}
	dl.Shape, dl.Strides = uintptr(unsafe.Pointer(&e.shape)), uintptr(unsafe.Pointer(&e.strides))
	if t.Len() > 0 {
		if dl.Data = uintptr(t.Pointer()); dl.Data == 0 { // Go's own memory
			b := t.Storage().Bytes()
			e.pins.Pin(unsafe.SliceData(b))
			dl.Data = uintptr(unsafe.Pointer(&b[t.Offset()*t.DType().Size()]))
		}
	}
	return e, dl, nil
}

func (e *export) register(address uintptr) {
	e.pins.Pin(e)
	exports.mu.Lock()
	defer exports.mu.Unlock()
	exports.live[address] = e
}

// deleteExport ends the export at that address, and reports whether there was one.
func deleteExport(address uintptr) bool {
	exports.mu.Lock()
	e := exports.live[address]
	delete(exports.live, address)
	exports.mu.Unlock()
	if e == nil {
		return false
	}
	e.pins.Unpin()
	e.storage.Release()
	return true
}

// remove calls the deleter of the structure at an address. For an export of this process it does so without C.
func remove(function, address uintptr) {
	switch {
	case deleteExport(address) || function == 0:
	case function == deleter():
		panic(fmt.Sprintf("dlpack: the structure at %#x was deleted already", address))
	default:
		callDeleter(function, address)
	}
}
