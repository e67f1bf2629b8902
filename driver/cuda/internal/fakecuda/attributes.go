//go:build linux && (amd64 || arm64) && !nocuda

package fakecuda

import "encoding/binary"

// Attributes of pointers (CUpointer_attribute).
const (
	attrContext       = 1
	attrMemoryType    = 2
	attrDevicePointer = 3
	attrHostPointer   = 4
	attrManaged       = 8
	attrOrdinal       = 9
	attrLegacyIPC     = 10
	attrRangeStart    = 11
	attrRangeSize     = 12
	attrMapped        = 13
	attrHandleTypes   = 14
	attrAccess        = 16
	attrMemPool       = 17
	attrMappingSize   = 18
	attrMappingBase   = 19
)

const (
	memoryHost   = 1
	memoryDevice = 2
)

// pointerAttributes returns all attributes of an address, nil if no memory is known there.
func (c *call) pointerAttributes(p uint64) map[uint32]uint64 {
	if h := c.hostAt(p); h != nil {
		return map[uint32]uint64{
			attrContext: h.ctx.handle, attrMemoryType: memoryHost, attrDevicePointer: p, attrHostPointer: p,
			attrManaged: 0, attrOrdinal: uint64(h.ctx.dev.ordinal), attrLegacyIPC: 0,
			attrRangeStart: h.start, attrRangeSize: uint64(h.size), attrMapped: 1,
			attrHandleTypes: 0, attrAccess: accessReadWrite, attrMemPool: 0,
			attrMappingSize: uint64(h.size), attrMappingBase: h.start,
		}
	}
	start, size, ok := c.extent(p)
	if !ok {
		return nil
	}
	r := c.find(p)
	v := map[uint32]uint64{
		attrMemoryType: memoryDevice, attrDevicePointer: p, attrManaged: 0,
		attrOrdinal:    uint64(c.deviceOf(p).ordinal),
		attrRangeStart: start, attrRangeSize: uint64(size), attrMapped: 1, attrMemPool: 0,
		attrMappingSize: r.end - r.start, attrMappingBase: r.start,
	}
	if b := r.block; b != nil {
		v[attrContext] = b.ctx.handle
		v[attrAccess] = accessReadWrite
		v[attrHandleTypes] = 0
		v[attrLegacyIPC] = 0
		if b.kind == fromAlloc {
			v[attrLegacyIPC] = 1
		}
		return v
	}
	x := r.mappingAt(p)
	v[attrContext], v[attrLegacyIPC] = 0, 0
	v[attrAccess] = x.access[c.ctx.dev]
	v[attrHandleTypes] = 0
	if x.pages.exportable {
		v[attrHandleTypes] = posixFD
	}
	v[attrMappingSize], v[attrMappingBase] = x.end-x.start, x.start
	return v
}

// attributeSize returns the size of an attribute in bytes, or 0 for an unknown attribute.
func attributeSize(attribute uint32) int {
	switch attribute {
	case attrMemoryType, attrManaged, attrOrdinal, attrLegacyIPC, attrMapped:
		return 4
	case attrContext, attrDevicePointer, attrHostPointer, attrRangeStart, attrRangeSize, attrHandleTypes, attrAccess,
		attrMemPool, attrMappingSize, attrMappingBase:
		return 8
	}
	return 0
}

func putAttribute(at uint64, attribute uint32, v uint64) {
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], v)
	n := attributeSize(attribute)
	copy(bytesAt(at, int64(n)), word[:n])
}

func (c *call) pointerGetAttribute(data uint64, attribute uint32, p uint64) Result {
	v, ok := c.pointerAttributes(p)[attribute]
	if data == 0 || !ok {
		return InvalidValue
	}
	putAttribute(data, attribute, v)
	return Success
}
