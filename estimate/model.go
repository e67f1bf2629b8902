package estimate

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Tensor is a tensor of a checkpoint.
type Tensor struct {
	Name  string
	Shape []int
	Size  int64 // bytes in the checkpoint
	Float bool  // it is loaded in the type of the run; others, such as quantized weights, stay as they are
}

// unusedNames end the names of tensors that recent versions of the libraries compute instead of loading, and
// bufferNames those of tensors without gradients.
var (
	unusedNames = strings.Fields("attn.masked_bias attention.masked_bias rotary_emb.inv_freq position_ids")
	bufferNames = strings.Fields("running_mean running_var num_batches_tracked")
)

func (t *Tensor) ends(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return t.Name == name || strings.HasSuffix(t.Name, "."+name)
	})
}

// unused reports whether the tensor is not loaded: GPT-2's mask attn.bias has four axes.
func (t *Tensor) unused() bool {
	return t.ends(unusedNames) || len(t.Shape) == 4 && t.ends([]string{"attn.bias", "attention.bias"})
}

// trained reports whether the tensor gets a gradient.
func (t *Tensor) trained() bool { return t.Float && !t.ends(bufferNames) }

func (t *Tensor) elements() int64 {
	n := int64(1)
	for _, length := range t.Shape {
		n *= int64(length)
	}
	return n
}

// other returns the length of the axis of a matrix that is not width, or width if both are; 0 if it is no such matrix.
// Linear layers store [out, in], and GPT-2's store [in, out].
func (t *Tensor) other(width int64) int64 {
	if len(t.Shape) != 2 {
		return 0
	}
	a, b := int64(t.Shape[0]), int64(t.Shape[1])
	switch width {
	case b:
		return a
	case a:
		return b
	}
	return 0
}

// A Model is the structure of a checkpoint, as far as the names and shapes of its tensors tell it.
type Model struct {
	Tensors    []Tensor
	Parameters int64 // elements of the tensors that are trained
	Other      int64 // bytes of the others: quantized weights, statistics

	Layers     int   // 0 if the names are not those of a known transformer
	Hidden     int64 // width of the residual stream
	Query      int64 // heads × head width
	KeyValue   int64 // key-value heads × head width
	Heads      int64
	HeadsKnown bool  // Heads is from Config or a tensor; otherwise it is assumed
	MLP        int64 // width between the two products of a layer
	Experts    int64 // of each layer; 0 without experts
	TopK       int64 // experts for each token
	Vocabulary int64 // 0 if there are no logits
	Tied       bool  // the output layer uses the weights of the embedding

	gated     bool // gate and up projections
	fusedQKV  bool // one product computes queries, keys and values
	fusedGate bool // one product computes gate and up
	layerNorm bool // norms have a bias: LayerNorm; otherwise RMSNorm
	headNorms bool // queries and keys are normalized
	learned   bool // positions are learned; otherwise they are rotations
	torchMHA  bool // nn.TransformerEncoderLayer: norms after the residual sums, ReLU
	embedding int  // index of the tensor; -1 without
	head      int
	stack     [][]int // by layer: indices of tensors
}

// roles are the roles of modules in a layer, by their names: the last component of a path, or the last two.
var roles = func() map[string]string {
	byName := map[string]string{}
	for role, names := range roleNames {
		for _, name := range strings.Fields(names) {
			byName[name] = role
		}
	}
	return byName
}()

var roleNames = map[string]string{
	"norm": "ln_1 ln_2 ln_f norm norm1 norm2 input_layernorm post_attention_layernorm pre_feedforward_layernorm " +
		"post_feedforward_layernorm attention_norm ffn_norm layer_norm LayerNorm layernorm_before layernorm_after " +
		"self_attn_layer_norm final_layer_norm sa_layer_norm output_layer_norm ln1 ln2",
	"headnorm":  "q_norm k_norm query_norm key_norm",
	"query":     "q_proj query wq q_lin",
	"key":       "k_proj key wk k_lin",
	"value":     "v_proj value wv v_lin",
	"qkv":       "c_attn query_key_value qkv qkv_proj Wqkv in_proj W_pack in_proj_weight",
	"attention": "o_proj out_proj wo out_lin attn.c_proj attn.proj attention.dense self_attention.dense",
	"gateup":    "gate_up_proj",
	"gate":      "gate_proj w1",
	"up":        "up_proj fc1 c_fc dense_h_to_4h linear1 w3 lin1 fc_in intermediate.dense wi",
	"down":      "down_proj fc2 mlp.c_proj dense_4h_to_h linear2 w2 lin2 fc_out",
}

// roleOf returns the role of a tensor in a layer by its name within the layer.
func roleOf(name string) string {
	parts := strings.Split(name, ".")
	if last := parts[len(parts)-1]; len(parts) > 1 && (last == "weight" || last == "bias") {
		parts = parts[:len(parts)-1]
	}
	last := parts[len(parts)-1]
	two := strings.Join(parts[max(0, len(parts)-2):], ".")
	switch { // BERT's attention.output.dense and output.dense
	case strings.HasSuffix(strings.Join(parts, "."), "attention.output.dense"):
		return "attention"
	case two == "output.dense":
		return "down"
	}
	return cmp.Or(roles[two], roles[last])
}

var (
	layerName  = regexp.MustCompile(`^(.*?)(?:^|\.)(layers?|h|blocks?)\.(\d+)\.(.+)$`)
	expertName = regexp.MustCompile(`(?:^|\.)experts\.(\d+)\.`)
)

var embeddingNames = strings.Fields("embed_tokens wte word_embeddings embed_in tok_embeddings embed embedding " +
	"token_embedding")

var headNames = strings.Fields("lm_head embed_out output head decoder lm_head.decoder")

var positionNames = strings.Fields("wpe embed_positions position_embeddings position_embedding pos_embed")

// NewModel finds the structure of a checkpoint. It never fails: a model that it does not recognize has no layers.
func NewModel(tensors []Tensor, c Config) *Model {
	tensors = slices.DeleteFunc(slices.Clone(tensors), func(t Tensor) bool { return t.unused() })
	m := &Model{Tensors: tensors, embedding: -1, head: -1}
	stacks := map[string]map[int][]int{}
	for i := range tensors {
		if tensors[i].trained() {
			m.Parameters += tensors[i].elements()
		} else {
			m.Other += tensors[i].Size
		}
		if parts := layerName.FindStringSubmatch(tensors[i].Name); parts != nil {
			if n, err := strconv.Atoi(parts[3]); err == nil {
				prefix := parts[1] + "." + parts[2]
				if stacks[prefix] == nil {
					stacks[prefix] = map[int][]int{}
				}
				stacks[prefix][n] = append(stacks[prefix][n], i)
			}
			continue
		}
		m.outside(i)
	}
	var found []*Model
	for _, prefix := range slices.Sorted(maps.Keys(stacks)) {
		s := *m
		for _, n := range slices.Sorted(maps.Keys(stacks[prefix])) {
			s.stack = append(s.stack, stacks[prefix][n])
		}
		if s.readLayer(c) {
			found = append(found, &s)
		}
	}
	if len(found) != 1 { // none, or an encoder and a decoder
		return m
	}
	m = found[0]
	m.Layers = len(m.stack)
	m.readEnds(c)
	return m
}

// moduleOf is the last component of a name without "weight".
func moduleOf(name string) string {
	name = strings.TrimSuffix(name, ".weight")
	return name[strings.LastIndexByte(name, '.')+1:]
}

// outside notes a tensor that belongs to no layer.
func (m *Model) outside(i int) {
	t := &m.Tensors[i]
	if len(t.Shape) != 2 {
		return
	}
	switch name := moduleOf(t.Name); {
	case slices.Contains(positionNames, name):
		m.learned = true
	case slices.Contains(embeddingNames, name) && m.embedding < 0:
		m.embedding = i
	case slices.Contains(headNames, name) && m.head < 0:
		m.head = i
	}
}

// readLayer finds the dimensions of a layer. It returns false if the layer has no attention or no MLP.
func (m *Model) readLayer(c Config) bool {
	byRole := map[string]*Tensor{}
	layer := m.stack[0]
	experts := map[string]bool{}
	for _, i := range layer {
		t := &m.Tensors[i]
		name := layerName.FindStringSubmatch(t.Name)[4]
		role := roleOf(name)
		if e := expertName.FindStringSubmatch(name); e != nil {
			experts[e[1]] = true
		}
		switch {
		case role == "norm" && len(t.Shape) == 1 && m.Hidden == 0:
			m.Hidden = int64(t.Shape[0])
		case role == "headnorm" && len(t.Shape) == 1:
			m.headNorms = true
		}
		if role == "norm" && strings.HasSuffix(name, "bias") {
			m.layerNorm = true
		}
		if byRole[role] == nil || len(t.Shape) > len(byRole[role].Shape) {
			byRole[role] = t
		}
		m.torchMHA = m.torchMHA || strings.HasSuffix(name, "in_proj_weight")
	}
	width := func(role string) int64 {
		if byRole[role] == nil {
			return 0
		}
		return byRole[role].other(m.Hidden)
	}
	m.Experts = int64(len(experts))
	m.Query, m.KeyValue = width("query"), width("key")
	if fused := width("qkv"); m.Query == 0 && fused > 0 {
		m.fusedQKV = true
		if m.Query = width("attention"); m.Query == 0 {
			m.Query = m.Hidden
		}
		m.KeyValue = (fused - m.Query) / 2
	}
	m.gated = byRole["gate"] != nil || byRole["gateup"] != nil
	if m.MLP = width("up"); m.MLP == 0 && byRole["gateup"] != nil {
		m.fusedGate, m.MLP = true, width("gateup")/2
	}
	m.findHeads(c, byRole["headnorm"])
	return m.Hidden > 0 && m.Query > 0 && m.KeyValue > 0 && m.MLP > 0
}

// findHeads finds or assumes the number of attention heads.
func (m *Model) findHeads(c Config, norm *Tensor) {
	m.Heads = c.Heads
	if m.Heads == 0 && norm != nil && len(norm.Shape) == 1 && norm.Shape[0] > 0 {
		m.Heads = m.Query / int64(norm.Shape[0])
	}
	m.HeadsKnown = m.Heads > 0
	if m.Heads == 0 {
		m.Heads = max(1, m.Query/64)
		if m.Query >= 2048 {
			m.Heads = m.Query / 128
		}
	}
	m.TopK = min(max(1, cmp.Or(c.TopK, 2)), max(1, m.Experts))
}

// readEnds finds the vocabulary and the output layer.
func (m *Model) readEnds(c Config) {
	if m.embedding < 0 {
		return
	}
	vocabulary := m.Tensors[m.embedding].other(m.Hidden)
	if m.head >= 0 {
		m.Vocabulary = m.Tensors[m.head].other(m.Hidden)
		return
	}
	isBERT := slices.ContainsFunc(m.stack[0], func(i int) bool {
		return strings.Contains(m.Tensors[i].Name, "attention.self.query")
	})
	if m.Tied = !isBERT && (c.Tied == nil || *c.Tied); m.Tied {
		m.Vocabulary = vocabulary
	}
}
