package estimate_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/estimate"
)

// tensors makes tensors of lines "name length length ...". A # in a name becomes the numbers of two layers.
func tensors(text string) []estimate.Tensor {
	var all []estimate.Tensor
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		t := estimate.Tensor{Float: true, Size: 4}
		for _, f := range fields[1:] {
			var n int
			fmt.Sscan(f, &n)
			t.Shape = append(t.Shape, n)
			t.Size *= int64(n)
		}
		for _, layer := range []string{"0", "1"} {
			t.Name = strings.Replace(fields[0], "#", layer, 1)
			all = append(all, t)
			if !strings.Contains(fields[0], "#") {
				break
			}
		}
	}
	return all
}

// The structure of a model follows from the names and shapes of its tensors.
func TestModelsAreRecognized(t *testing.T) {
	for name, c := range map[string]struct {
		tensors string
		want    string
	}{
		"Llama": {
			`model.embed_tokens.weight 1000 64
			model.layers.#.self_attn.q_proj.weight 64 64
			model.layers.#.self_attn.k_proj.weight 16 64
			model.layers.#.self_attn.v_proj.weight 16 64
			model.layers.#.self_attn.o_proj.weight 64 64
			model.layers.#.self_attn.rotary_emb.inv_freq 8
			model.layers.#.mlp.gate_proj.weight 160 64
			model.layers.#.mlp.up_proj.weight 160 64
			model.layers.#.mlp.down_proj.weight 64 160
			model.layers.#.input_layernorm.weight 64
			model.layers.#.post_attention_layernorm.weight 64
			model.norm.weight 64
			lm_head.weight 1000 64`, "2 layers hidden 64 query 64 key 16 mlp 160 vocabulary 1000 tied false, 210240 parameters",
		},
		"GPT-2, with its masks": {
			`wte.weight 1000 64
			wpe.weight 128 64
			h.#.ln_1.weight 64
			h.#.ln_1.bias 64
			h.#.attn.bias 1 1 128 128
			h.#.attn.c_attn.weight 64 192
			h.#.attn.c_attn.bias 192
			h.#.attn.c_proj.weight 64 64
			h.#.mlp.c_fc.weight 64 256
			h.#.mlp.c_proj.weight 256 64
			h.#.ln_2.weight 64
			ln_f.weight 64`, "2 layers hidden 64 query 64 key 64 mlp 256 vocabulary 1000 tied true, 171328 parameters",
		},
		"BERT, without an output layer": {
			`embeddings.word_embeddings.weight 1000 64
			encoder.layer.#.attention.self.query.weight 64 64
			encoder.layer.#.attention.self.key.weight 64 64
			encoder.layer.#.attention.self.value.weight 64 64
			encoder.layer.#.attention.output.dense.weight 64 64
			encoder.layer.#.attention.output.LayerNorm.weight 64
			encoder.layer.#.intermediate.dense.weight 256 64
			encoder.layer.#.output.dense.weight 64 256`, "2 layers hidden 64 query 64 key 64 mlp 256 vocabulary 0 tied false, 162432 parameters",
		},
		"GPT-NeoX": {
			`gpt_neox.embed_in.weight 1000 64
			gpt_neox.layers.#.input_layernorm.weight 64
			gpt_neox.layers.#.attention.query_key_value.weight 192 64
			gpt_neox.layers.#.attention.dense.weight 64 64
			gpt_neox.layers.#.mlp.dense_h_to_4h.weight 256 64
			gpt_neox.layers.#.mlp.dense_4h_to_h.weight 64 256
			embed_out.weight 1000 64`, "2 layers hidden 64 query 64 key 64 mlp 256 vocabulary 1000 tied false, 226432 parameters",
		},
		"Phi-3, with fused products": {
			`model.embed_tokens.weight 1000 64
			model.layers.#.input_layernorm.weight 64
			model.layers.#.self_attn.qkv_proj.weight 96 64
			model.layers.#.self_attn.o_proj.weight 64 64
			model.layers.#.mlp.gate_up_proj.weight 320 64
			model.layers.#.mlp.down_proj.weight 64 160
			lm_head.weight 1000 64`, "2 layers hidden 64 query 64 key 16 mlp 160 vocabulary 1000 tied false, 210048 parameters",
		},
		"Mixtral, with experts": {
			`model.embed_tokens.weight 1000 64
			model.layers.#.input_layernorm.weight 64
			model.layers.#.self_attn.q_proj.weight 64 64
			model.layers.#.self_attn.k_proj.weight 16 64
			model.layers.#.self_attn.v_proj.weight 16 64
			model.layers.#.self_attn.o_proj.weight 64 64
			model.layers.#.block_sparse_moe.gate.weight 2 64
			model.layers.#.block_sparse_moe.experts.0.w1.weight 160 64
			model.layers.#.block_sparse_moe.experts.0.w2.weight 64 160
			model.layers.#.block_sparse_moe.experts.0.w3.weight 160 64
			model.layers.#.block_sparse_moe.experts.1.w1.weight 160 64
			model.layers.#.block_sparse_moe.experts.1.w2.weight 64 160
			model.layers.#.block_sparse_moe.experts.1.w3.weight 160 64`,
			"2 layers hidden 64 query 64 key 16 mlp 160 vocabulary 1000 tied true, 2 experts, 207744 parameters",
		},
		"a convolutional network": {
			`layer1.0.conv1.weight 64 64 3 3
			layer1.0.bn1.running_mean 64
			layer2.1.conv1.weight 64 64 3 3
			fc.weight 1000 64`, "0 layers, 137728 parameters and 256 other bytes",
		},
		"an encoder and a decoder": {
			`shared.embed_tokens.weight 1000 64
			encoder.layers.#.norm1.weight 64
			encoder.layers.#.q_proj.weight 64 64
			encoder.layers.#.k_proj.weight 64 64
			encoder.layers.#.fc1.weight 256 64
			decoder.layers.#.norm1.weight 64
			decoder.layers.#.q_proj.weight 64 64
			decoder.layers.#.k_proj.weight 64 64
			decoder.layers.#.fc1.weight 256 64`, "0 layers, 162560 parameters",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := estimate.NewModel(tensors(c.tensors), estimate.Config{})
			got := fmt.Sprintf("%d layers", m.Layers)
			if m.Layers > 0 {
				got += fmt.Sprintf(" hidden %d query %d key %d mlp %d vocabulary %d tied %v", m.Hidden, m.Query,
					m.KeyValue, m.MLP, m.Vocabulary, m.Tied)
			}
			if m.Experts > 0 {
				got += fmt.Sprintf(", %d experts", m.Experts)
			}
			got += fmt.Sprintf(", %d parameters", m.Parameters)
			if m.Other > 0 {
				got += fmt.Sprintf(" and %d other bytes", m.Other)
			}
			if got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
			for _, o := range []estimate.Options{
				{Train: true, DType: estimate.AMP}, {New: 5}, {Train: true, Checkpoint: true},
			} {
				e := estimateOf(t, m, o)
				grads := e.Figures[estimate.Gradients].Bytes
				if weights := m.Parameters * 4; o.Train && grads < weights || !o.Train && grads != 0 {
					t.Errorf("%+v: gradients of %d bytes, of %d parameters", o, grads, m.Parameters)
				}
			}
		})
	}
}

// Quantized weights stay as they are, and are not trained.
func TestQuantizedWeightsKeepTheirSize(t *testing.T) {
	all := []estimate.Tensor{
		{Name: "a.weight", Shape: []int{100, 10}, Size: 500},
		{Name: "b.weight", Shape: []int{100, 10}, Size: 4000, Float: true},
	}
	e, err := estimate.New(all, estimate.Config{}, estimate.Options{Train: true, DType: estimate.BF16})
	if err != nil {
		t.Fatal(err)
	}
	if w, g := e.Figures[estimate.Weights], e.Figures[estimate.Gradients]; w.Bytes != 2500 || g.Bytes != 2000 ||
		w.Formula.Bytes() != 2500 {
		t.Errorf("weights %d (%s), gradients %d", w.Bytes, w.Formula, g.Bytes)
	}
}

// The time and memory for a header are in proportion to its tensors.
func TestHeadersWithManyTensors(t *testing.T) {
	layer := tensors(`layers.#.norm.weight 2
		layers.#.q_proj.weight 2 2
		layers.#.k_proj.weight 2 2
		layers.#.fc1.weight 2 2`)
	var all []estimate.Tensor
	for i := range 20_000 {
		for _, x := range layer {
			if number, ok := strings.CutPrefix(x.Name, "layers.0."); ok {
				x.Name = fmt.Sprintf("layers.%d.%s", i, number)
				all = append(all, x)
			}
		}
	}
	if _, err := estimate.New(all, estimate.Config{}, estimate.Options{}); err == nil ||
		err.Error() != "estimate: 20000 layers: at most 10000" {
		t.Errorf("%v", err)
	}
	for i := range all {
		all[i].Name = fmt.Sprintf("t%d", i)
	}
	e, err := estimate.New(all, estimate.Config{}, estimate.Options{Train: true})
	if err != nil || len(e.Program.Ops) > 40*len(all) {
		t.Errorf("%d requests for %d tensors, %v", len(e.Program.Ops), len(all), err)
	}
}

func TestInvalidOptionsAreErrors(t *testing.T) {
	llama := model(t, "llama")
	empty := estimate.NewModel(nil, estimate.Config{})
	for want, c := range map[string]struct {
		m *estimate.Model
		o estimate.Options
	}{
		"too much memory to describe": {llama, estimate.Options{Batch: 1 << 30, Sequence: 1 << 30}},

		`estimate: optimizer "lion": want one of adamw, adam,`: {llama, estimate.Options{Optimizer: "lion"}},
		"estimate: batch -1: want 1 to 1073741824":             {llama, estimate.Options{Batch: -1}},
		"estimate: new tokens -3: want 0 to 1073741824":        {llama, estimate.Options{New: -3}},
		"estimate: dropout NaN: want 0 to 1":                   {llama, estimate.Options{Dropout: math.NaN()}},
		"estimate: the checkpoint has no weights":              {empty, estimate.Options{}},
	} {
		if _, err := c.m.Estimate(c.o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, text := range []string{"", "[]", `{"num_attention_heads": -1}`, `{"n_head": "x"}`} {
		c, err := estimate.ParseConfig([]byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "estimate: config.json: ") {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
	c, err := estimate.ParseConfig([]byte(`{"text_config": {"num_attention_heads": 7, "hidden_act": "gelu_new"}}`))
	if err != nil || c.Heads != 7 || !c.NewGELU {
		t.Errorf("%+v, %v", c, err)
	}
}

func ExampleNew() {
	// A checkpoint has these; see Tensors.
	all := []estimate.Tensor{{Name: "fc.weight", Shape: []int{4096, 4096}, Size: 4 * 4096 * 4096, Float: true}}
	e, err := estimate.New(all, estimate.Config{}, estimate.Options{Train: true, Optimizer: "adamw"})
	if err != nil {
		fmt.Println(err)
		return
	}
	f := e.Figures[estimate.OptimizerState]
	fmt.Printf("%s: %d bytes = %s\n", f.Category, f.Bytes, f.Formula)
	fmt.Printf("peak: %d bytes in the %s\n", e.Peak.Peak, e.Peak.Name)
	// Output:
	// optimizer state: 134217728 bytes = 2 states × 16,777,216 parameters × 4 bytes
	// peak: 335552512 bytes in the optimizer step
}
