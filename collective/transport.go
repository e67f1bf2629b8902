package collective

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/collective/internal/comm"
	"github.com/ashlar-go/ashlar/collective/internal/nccl"
	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
	"github.com/ashlar-go/ashlar/collective/internal/ring"
	"github.com/ashlar-go/ashlar/tensor"
)

// cuda is the name of the driver of NCCL's devices.
const cuda = "cuda"

// A decision is made by rank 0 for all ranks: how they are connected.
type decision struct {
	Backend string
	ID      []byte // of NCCL's communicator
}

// decide makes the decision from the properties of the ranks.
func decide(cfg Config, peers []rendezvous.Peer) ([]byte, error) {
	var d decision
	for _, p := range peers {
		if p.Backend != peers[0].Backend {
			return nil, fmt.Errorf("rank %d on %s was told to use backend %q, and rank 0 %q",
				p.Rank, p.Host, p.Backend, peers[0].Backend)
		}
	}
	noGPU := slices.IndexFunc(peers, func(p rendezvous.Peer) bool { return p.Driver != cuda })
	switch d.Backend = peers[0].Backend; {
	case d.Backend == "" && noGPU >= 0:
		d.Backend = Host
	case d.Backend == "":
		d.Backend = NCCL
	case d.Backend == NCCL && noGPU >= 0:
		p := peers[noGPU]
		return nil, fmt.Errorf("backend %q wants every rank on a CUDA device: rank %d on %s is on %s (%s)",
			NCCL, p.Rank, p.Host, p.Driver, p.Device)
	}
	if d.Backend == NCCL {
		if err := fitNCCL(peers); err != nil {
			return nil, err
		}
		id, err := nccl.NewID(nccl.Options{Libraries: cfg.Libraries})
		if err != nil {
			return nil, err
		}
		d.ID = id[:]
	}
	return json.Marshal(d)
}

// fitNCCL returns an error if NCCL would fail, with a clearer message.
func fitNCCL(peers []rendezvous.Peer) error {
	owner := map[string]rendezvous.Peer{}
	var lacking []string
	for _, p := range peers {
		if q, taken := owner[p.UUID]; taken && p.UUID != "" {
			return fmt.Errorf("ranks %d and %d are both on %s (%s) of %s: want a GPU for each", q.Rank, p.Rank,
				p.Device, p.UUID, p.Host)
		}
		owner[p.UUID] = p
		if p.Library == "" {
			lacking = append(lacking, fmt.Sprintf("rank %d on %s: %s", p.Rank, p.Host, p.Lacks))
		} else if q := peers[0]; q.Library != "" && p.Library != q.Library {
			return fmt.Errorf("rank %d on %s has NCCL %s, and rank 0 on %s %s: want one version", p.Rank, p.Host,
				p.Library, q.Host, q.Library)
		}
	}
	if len(lacking) > 0 {
		lacking = lacking[:min(len(lacking), 8)]
		return fmt.Errorf("NCCL is missing; backend %q works without it, with copies through the host: %s", Host,
			strings.Join(lacking, "; "))
	}
	return nil
}

// connect makes the transport of a decision. All ranks do so at the same time.
func connect(ctx context.Context, p *tensor.Place, cfg Config, m *rendezvous.Member) (comm.Transport, string, error) {
	var d decision
	if err := json.Unmarshal(m.Shared, &d); err != nil {
		return nil, "", fmt.Errorf("what rank 0 decided: %w", err)
	}
	switch d.Backend {
	case NCCL:
		var id nccl.ID
		if copy(id[:], d.ID) != len(id) {
			return nil, "", fmt.Errorf("what rank 0 decided: an ID of %d bytes", len(d.ID))
		}
		m.NoLinks()
		t, err := nccl.New(ctx, p.Device(), nccl.Options{Libraries: cfg.Libraries}, id, cfg.Rank, cfg.Size)
		return t, NCCL, err
	case Host:
		links, err := m.Links(ctx)
		if err != nil {
			return nil, "", err
		}
		return ring.New(p.Device(), cfg.Rank, cfg.Size, links), Host, nil
	}
	return nil, "", fmt.Errorf("what rank 0 decided: backend %q", d.Backend)
}
