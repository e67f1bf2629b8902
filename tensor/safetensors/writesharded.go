package safetensors

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/ashlar-go/ashlar/internal/atomicfile"
	"github.com/ashlar-go/ashlar/tensor"
)

const (
	wholeName = "model" + fileEnding
	indexName = "model" + indexEnding
)

// WriteSharded writes a checkpoint to a directory, which it creates if necessary. If the tensors have at most maxShard
// bytes it writes model.safetensors. Otherwise it writes files model-00001-of-00002.safetensors and so on, each with at
// most maxShard bytes or one larger tensor, and then model.safetensors.index.json. The tensors are split in the order
// of their names. Each file is complete or absent; the index is written last. WriteSharded refuses to mix one file with
// the index of another checkpoint in the directory, since the result would be ambiguous.
func WriteSharded(dir string, tensors map[string]*tensor.Tensor, metadata map[string]string, maxShard int64) error {
	if maxShard <= 0 {
		panic(fmt.Sprintf("safetensors: WriteSharded with shards of at most %d bytes", maxShard))
	}
	shards, total := split(tensors, maxShard)
	other := indexName
	if len(shards) > 1 {
		other = wholeName
	}
	if _, err := os.Lstat(filepath.Join(dir, other)); err == nil {
		return fmt.Errorf("safetensors: write to %s: it contains %s of another checkpoint: remove it first", dir, other)
	} else if !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("safetensors: %w", err)
	}
	plans := make([]*plan, len(shards))
	for i, shard := range shards {
		var err error
		if plans[i], err = planned(shard, metadata); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if len(plans) == 1 {
		return plans[0].writeFile(filepath.Join(dir, wholeName))
	}
	names := map[string]string{}
	for i, p := range plans {
		file := fmt.Sprintf("model-%05d-of-%05d%s", i+1, len(plans), fileEnding)
		if err := p.writeFile(filepath.Join(dir, file)); err != nil {
			return err
		}
		for name := range shards[i] {
			names[name] = file
		}
	}
	path := filepath.Join(dir, indexName)
	err := atomicfile.Write(path, atomicfile.Options{}, func(w io.Writer) error {
		_, err := w.Write(indexText(names, total))
		return err
	})
	if err != nil {
		return fmt.Errorf("safetensors: write %s: %w", path, err)
	}
	return nil
}

// split divides the tensors among files, at least one.
func split(tensors map[string]*tensor.Tensor, maxShard int64) (shards []map[string]*tensor.Tensor, total int64) {
	shards = append(shards, map[string]*tensor.Tensor{})
	size := int64(0)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		n := int64(0)
		if t := tensors[name]; t.Defined() { // else planned refuses it
			n = t.Size()
		}
		if last := len(shards) - 1; len(shards[last]) > 0 && size > maxShard-n {
			shards = append(shards, map[string]*tensor.Tensor{})
			size = 0
		}
		shards[len(shards)-1][name] = tensors[name]
		size += n
		total += n
	}
	return shards, total
}

// indexText returns the index: JSON, sorted by name.
func indexText(shards map[string]string, total int64) []byte {
	text := append([]byte("{\n  \"metadata\": {\n    \"total_size\": "), strconv.FormatInt(total, 10)...)
	text = append(text, "\n  },\n  \"weight_map\": {"...)
	for i, name := range slices.Sorted(maps.Keys(shards)) {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendString(append(text, "\n    "...), name)
		text = appendString(append(text, ": "...), shards[name])
	}
	return append(text, "\n  }\n}\n"...)
}
