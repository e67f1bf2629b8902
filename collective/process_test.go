package collective

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/compute"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/tensor"
)

// rankRole is the argument that makes this test binary a rank; the variables of its launcher follow.
const rankRole = "rank"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == rankRole {
		if err := rankProcess(os.Args[2:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rankProcess is a rank. It reports the rank that was lost, if any, and returns an error if it leaves anything behind.
func rankProcess(variables []string) error {
	lookup := func(name string) (string, bool) {
		for _, v := range variables {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
	cfg, ok, err := FromEnv(lookup)
	if err != nil || !ok {
		return fmt.Errorf("FromEnv: %v, %w", ok, err)
	}
	if proxy, ok := lookup("PROXY"); ok {
		cfg.Address = proxy
	}
	cfg.Timeout = bound
	_, closes := lookup("CLOSES")
	p, err := compute.Open("host")
	if err != nil {
		return err
	}
	err = work(p, cfg, closes)
	if leaks := p.Leaks(); leaks.Count > 0 {
		return fmt.Errorf("%w, and %v", err, leaks)
	}
	p.Close()
	if left := goroutinesLeft(); left != "" {
		return fmt.Errorf("%w, and goroutines are left: %s", err, left)
	}
	var lost *RankError
	if errors.As(err, &lost) && errors.Is(err, ErrRankLost) {
		fmt.Printf("lost %d\n", lost.Rank)
		return nil
	}
	return err
}

// work repeats all-reduces forever, or closes after the first one. It reports the first sum as ready.
func work(p *tensor.Place, cfg Config, closes bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	c, err := Join(ctx, p, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	x, err := tensor.Full(p, dtype.Float32, cfg.Rank+1, 1<<18)
	if err != nil {
		return err
	}
	defer x.Release()
	if err := c.AllReduce(nil, Sum, x, x); err != nil {
		return err
	}
	if err := c.Wait(ctx, nil); err != nil {
		return err
	}
	if v, err := x.At(-1); err != nil || v.Int64() != int64(cfg.Size*(cfg.Size+1)/2) {
		return fmt.Errorf("the sum is %v: %w", v, err)
	}
	fmt.Println("ready")
	if closes {
		return c.Close()
	}
	for {
		err = c.AllReduce(nil, Max, x, x)
		if err == nil {
			err = c.Wait(ctx, nil)
		}
		if err != nil {
			break
		}
	}
	if again := c.Close(); again == nil || again.Error() != err.Error() {
		return fmt.Errorf("%w, but Close says %w", err, again)
	}
	return err
}

// A rank that is killed in the middle of its work is named by all others, which end by themselves.
func TestKilledProcess(t *testing.T) {
	for size, victims := range map[int][]int{2: {0, 1}, 3: {1}} {
		for _, victim := range victims {
			t.Run(fmt.Sprintf("rank %d of %d", victim, size), func(t *testing.T) { killOne(t, size, victim) })
		}
	}
}

func killOne(t *testing.T, size, victim int) {
	agent, err := net.Listen("tcp", "127.0.0.1:0") // torchrun's, which keeps MASTER_PORT
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	ranks, lines := make([]*exec.Cmd, size), make([]*bufio.Scanner, size)
	for rank := range ranks {
		ranks[rank] = exec.CommandContext(
			ctx, os.Args[0], rankRole, fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", size),
			fmt.Sprintf("LOCAL_RANK=%d", rank), fmt.Sprintf("LOCAL_WORLD_SIZE=%d", size), "GROUP_RANK=0", "MASTER_ADDR=127.0.0.1",
			fmt.Sprintf("MASTER_PORT=%d", agent.Addr().(*net.TCPAddr).Port), "TORCHELASTIC_RUN_ID=none",
			"TORCHELASTIC_RESTART_COUNT=0", "TORCHELASTIC_USE_AGENT_STORE=True",
		)
		out, err := ranks[rank].StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		ranks[rank].Stderr = os.Stderr
		if err := ranks[rank].Start(); err != nil {
			t.Fatal(err)
		}
		lines[rank] = bufio.NewScanner(out)
	}
	for rank := range ranks {
		if lines[rank].Scan(); lines[rank].Text() != "ready" {
			t.Errorf("rank %d: %q", rank, lines[rank].Text())
		}
	}
	if err := ranks[victim].Process.Kill(); err != nil {
		t.Error(err)
	}
	for rank := range ranks {
		for lines[rank].Scan() && rank != victim {
			if want := fmt.Sprintf("lost %d", victim); lines[rank].Text() != want {
				t.Errorf("rank %d: %q, want %q", rank, lines[rank].Text(), want)
			}
		}
		if err := ranks[rank].Wait(); (err != nil) != (rank == victim) {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
