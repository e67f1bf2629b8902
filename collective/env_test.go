package collective

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// environmentOf makes a lookup of "A=1 B=2".
func environmentOf(text string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for field := range strings.FieldsSeq(text) {
			if value, ok := strings.CutPrefix(field, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

func TestFromEnv(t *testing.T) {
	const agent = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 ROLE_RANK=5 MASTER_ADDR=node0 TORCHELASTIC_RESTART_COUNT=2 " +
		"TORCHELASTIC_RUN_ID=job7 TORCHELASTIC_USE_AGENT_STORE=True"
	for name, test := range map[string]struct {
		env  string
		want Config
	}{
		"torchrun": {agent + " MASTER_PORT=29500", Config{
			Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Node: 1, Restart: 2, Address: "node0:29600", Ports: 8, ID: "29500@job7",
		}},
		"torchrun, a high port": {agent + " MASTER_PORT=65500", Config{
			Rank: 5, Size: 8, LocalRank: 1, LocalSize: 4, Node: 1, Restart: 2, Address: "node0:65400", Ports: 8, ID: "65500@job7",
		}},
		"torchrun without its own store": {
			"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=localhost MASTER_PORT=40123 " +
				"TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=False",
			Config{Size: 2, LocalSize: 2, Address: "localhost:40123", Ports: 1, ID: "40123@none"},
		},
		"torchrun on one machine": {
			"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=40123",
			Config{Size: 2, LocalSize: 2, Address: "127.0.0.1:40123", Ports: 1, ID: "40123@"},
		},
		"with a secret": {
			"RANK=0 WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=40123 ASHLAR_SECRET=0123456789abcdef ASHLAR_ENCRYPT=1 ASHLAR_LISTEN=10.1.0.1",
			Config{
				Size: 2, Address: "node0:40123", Ports: 1, ID: "40123@", Secret: "0123456789abcdef", Encrypt: true,
				Listen: "10.1.0.1",
			},
		},
		"with a file": {
			"RANK=0 WORLD_SIZE=2 MASTER_ADDR=node0 MASTER_PORT=40123 ASHLAR_SECRET_FILE=/run/secret ASHLAR_ENCRYPT=0 ASHLAR_TRUSTED_NETWORK=1",
			Config{Size: 2, Address: "node0:40123", Ports: 1, ID: "40123@", SecretFile: "/run/secret", TrustedNetwork: true},
		},
		"by hand": {
			"RANK=1 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=29500",
			Config{Rank: 1, Size: 2, Address: "[::1]:29500", Ports: 1, ID: "29500@"},
		},
		"Open MPI on one machine": {
			"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=prterun-a-1@1",
			Config{Rank: 1, Size: 4, LocalRank: 1, LocalSize: 4, Address: "127.0.0.1:23856", Ports: 8, ID: "prterun-a-1@1"},
		},
		"Open MPI on several": {
			"OMPI_COMM_WORLD_RANK=9 OMPI_COMM_WORLD_SIZE=16 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=8 PMIX_NAMESPACE=n " +
				"MASTER_ADDR=10.0.0.1 MASTER_PORT=1234",
			Config{Rank: 9, Size: 16, LocalRank: 1, LocalSize: 8, Address: "10.0.0.1:1234", Ports: 1, ID: "1234@n"},
		},
		"MPICH": {
			"PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3",
			Config{Rank: 2, Size: 3, LocalRank: 2, LocalSize: 3, Address: "127.0.0.1:22088", Ports: 8},
		},
		"MPICH in an allocation of Slurm": {
			"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=77 SLURM_STEP_ID=0 " +
				"SLURM_JOB_NODELIST=gpu[07,09]",
			Config{Rank: 2, Size: 4, LocalSize: 2, Address: "gpu07:21840", Ports: 8, ID: "slurm.77.0"},
		},
		"Slurm": {
			"SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=0 " +
				"SLURM_STEP_NODELIST=gpu[07-08] SLURM_JOB_NODELIST=gpu[05-08]",
			Config{Rank: 3, Size: 4, LocalRank: 1, Node: 1, Address: "gpu07:21840", Ports: 8, ID: "slurm.77.0"},
		},
		"Slurm with a meeting point": {
			"SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_JOB_ID=77 SLURM_STEP_ID=1 WORLD_SIZE=8 MASTER_ADDR=head MASTER_PORT=5000",
			Config{Rank: 3, Size: 8, LocalRank: 1, Address: "head:5000", Ports: 1, ID: "5000@slurm.77.1"},
		},
		"torchrun in a step of Slurm": {
			"RANK=0 WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=1 SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0",
			Config{Size: 1, Address: "a:1", Ports: 1, ID: "1@"},
		},
	} {
		got, ok, err := FromEnv(environmentOf(test.env))
		if err != nil || !ok || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, %v\n got %+v\nwant %+v", name, ok, err, got, test.want)
		}
	}
}

func TestFromNoEnv(t *testing.T) {
	for _, env := range []string{
		"", "HOME=/root", "MASTER_ADDR=a MASTER_PORT=1", "LOCAL_RANK=0", "RANK= WORLD_SIZE=",
		"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=5 SLURM_JOB_NODELIST=a[1-2]", // the batch script itself
	} {
		if c, ok, err := FromEnv(environmentOf(env)); ok || err != nil {
			t.Errorf("%q: %+v, %v, %v", env, c, ok, err)
		}
	}
}

func TestFromHalfAnEnvironment(t *testing.T) {
	for env, want := range map[string]string{
		"RANK=1":                         "launched by torchrun: missing WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
		"WORLD_SIZE=2 MASTER_ADDR=a":     "launched by torchrun: missing RANK, MASTER_PORT",
		"OMPI_COMM_WORLD_SIZE=2":         "launched by Open MPI: missing OMPI_COMM_WORLD_RANK, MASTER_ADDR, MASTER_PORT (a free port of rank 0's machine)",
		"PMI_RANK=0":                     "launched by MPICH: missing PMI_SIZE",
		"SLURM_PROCID=0 SLURM_STEP_ID=0": "launched by Slurm: missing SLURM_NTASKS",
		"RANK=x WORLD_SIZE=-2 MASTER_ADDR=a MASTER_PORT=1":                   `launched by torchrun: RANK is "x": want a number from 0; WORLD_SIZE is "-2": want a number from 0`,
		"RANK=2 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1":                    "rank 2 of 2: want 0 to 1 (from what torchrun set)",
		"RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=99999":                "MASTER_PORT is 99999: want a port from 1 to 65535",
		"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1 ASHLAR_ENCRYPT=yes": `ASHLAR_ENCRYPT is "yes": want 1 or 0`,
		"PMI_RANK=0 PMI_SIZE=4 MPI_LOCALNRANKS=2":                            "launched by MPICH: missing MASTER_ADDR, MASTER_PORT",
	} {
		_, ok, err := FromEnv(environmentOf(env))
		if ok || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v\nwant %s", env, ok, err, want)
		}
	}
}

func TestFirstHost(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "a": "a", "a,b": "a", "node[003-010,012],gpu7": "node003", "n[7,9]": "n7", "n[7]-x,y": "n7-x", "r[1-2]c[3-4]": "r1c3",
		"n[": "n", "n]": "n]", "n[5": "n5", "[": "", "a.example.org,b": "a.example.org",
	} {
		if got := firstHost(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}

// FromEnv accepts the number in a launcher's variable, or names the variable and what it expects.
func TestDefect02_NumbersOfTheEnvironment(t *testing.T) {
	for _, env := range []string{
		"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=h MASTER_PORT=29500 TORCHELASTIC_RESTART_COUNT=2",
		"RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True",
		"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4",
		"PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3",
		"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=77 SLURM_STEP_ID=0 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_JOB_NODELIST=gpu[07,09]",
	} {
		testkit.Replaced(env, func(n, changed string) {
			c, _, err := FromEnv(environmentOf(changed))
			switch {
			case err != nil && strings.Contains(err.Error(), "missing MASTER_ADDR"): // the ranks are on several machines then
			case err != nil && (!strings.Contains(err.Error(), n) || !strings.Contains(err.Error(), "want")):
				t.Errorf("%s: %v", changed, err)
			case err == nil && errors.Join(c.check(), c.checkAddress()) != nil:
				t.Errorf("%s: %+v", changed, c)
			}
		})
	}
}
