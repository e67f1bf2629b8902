package estimate

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// A Config has facts that shapes do not show. Zero values are unknown.
type Config struct {
	Heads   int64   // attention heads
	TopK    int64   // experts for each token
	NewGELU bool    // the activation is "gelu_new"
	Tied    *bool   // the output layer uses the weights of the embedding
	Dropout float64 // after attention and after the MLP, in training
}

// hubConfig has the fields of config.json: those of most models, and GPT-2's names.
type hubConfig struct {
	Heads      int64      `json:"num_attention_heads"`
	GPTHeads   int64      `json:"n_head"`
	TopK       int64      `json:"num_experts_per_tok"`
	Activation string     `json:"activation_function"`
	HiddenAct  string     `json:"hidden_act"`
	Tied       *bool      `json:"tie_word_embeddings"`
	Dropout    float64    `json:"resid_pdrop"`
	BERT       float64    `json:"hidden_dropout_prob"`
	Text       *hubConfig `json:"text_config"` // of models that also read images
}

// ParseConfig reads the file config.json beside a checkpoint of Hugging Face.
func ParseConfig(text []byte) (Config, error) {
	var h hubConfig
	if err := json.Unmarshal(text, &h); err != nil {
		return Config{}, fmt.Errorf("estimate: config.json: %w", err)
	}
	if h.Text != nil && h.Heads == 0 {
		h = *h.Text
	}
	c := Config{
		Heads: cmp.Or(h.Heads, h.GPTHeads), TopK: h.TopK, Tied: h.Tied, Dropout: max(h.Dropout, h.BERT),
		NewGELU: h.Activation == "gelu_new" || h.HiddenAct == "gelu_new",
	}
	if c.Heads < 0 || c.Heads > MaxLength || c.TopK < 0 || c.TopK > MaxLength || c.Dropout < 0 || c.Dropout > 1 {
		return Config{}, fmt.Errorf("estimate: config.json: %d attention heads, %d experts for each token, dropout "+
			"%g: want 0 to %d, and 0 to 1", c.Heads, c.TopK, c.Dropout, MaxLength)
	}
	return c, nil
}
