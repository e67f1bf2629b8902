package collective

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
)

// Ports that are not the launcher's own.
const (
	// agentOffset is added to MASTER_PORT if torchrun's agent uses that port itself. The ports next to MASTER_PORT are
	// often used for a second torchrun on the same machine.
	agentOffset = 100

	portSpan = 8 // number of ports to try if the launcher reserved none

	// If a launcher sets no port, the run's name selects one of portGroups groups of portSpan ports from firstPort on.
	// They are below the ports that systems assign automatically.
	firstPort  = 20_000
	portGroups = 1_000

	maxPort = 65535
)

// loopback is the address of rank 0 if all ranks are on one machine.
const loopback = "127.0.0.1"

// FromEnv makes a Config from the environment variables of a launcher. It reads them with lookup, such as os.LookupEnv.
// It returns false if no launcher's variables are set. If only some are set, the error names the missing ones.
//
//	torchrun, or by hand   RANK WORLD_SIZE MASTER_ADDR MASTER_PORT; LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK
//	                       TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_USE_AGENT_STORE
//	Open MPI               OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE; OMPI_COMM_WORLD_LOCAL_RANK _LOCAL_SIZE PMIX_NAMESPACE
//	MPICH, Intel MPI       PMI_RANK PMI_SIZE; MPI_LOCALRANKID MPI_LOCALNRANKS
//	Slurm's srun           SLURM_PROCID SLURM_NTASKS (or SLURM_STEP_NUM_TASKS) SLURM_STEP_NODELIST; SLURM_LOCALID SLURM_NODEID
//	                       SLURM_JOB_ID SLURM_STEP_ID
//
// The variables after a semicolon are optional. FromEnv uses the first launcher of the table whose rank is set. A Slurm
// batch script that was not started by srun is not a rank.
//
// # Where the ranks meet
//
// With every launcher, the ranks meet at MASTER_ADDR and MASTER_PORT if both are set. There are two exceptions. If all
// ranks are on one machine (LOCAL_WORLD_SIZE is WORLD_SIZE), the loopback address replaces MASTER_ADDR. If torchrun's
// agent uses MASTER_PORT itself (TORCHELASTIC_USE_AGENT_STORE is True), the ranks use the first free port of the 8
// ports from MASTER_PORT+100 on (or MASTER_PORT-100, if the sum is above 65535). The Config's ID consists of the run's
// ID and the port, so that two runs never mix. It does not include TORCHELASTIC_RESTART_COUNT, because torchrun's
// agents on several machines may count differently.
//
// If they are not set, Slurm's ranks meet on the first machine of the step or job. MPI's ranks also do so if Slurm
// allocated their machines; otherwise they meet on the loopback address if all are on one machine, and else FromEnv
// returns an error that says to set the two variables. The port is then one of 8 consecutive ports between 20000 and
// 27999, selected by the name of the job.
//
// # Trust
//
// These variables are Ashlar's own, and the same for every rank:
//
//	ASHLAR_SECRET           the Config's Secret
//	ASHLAR_SECRET_FILE      the path of a file with the secret; Join reads it
//	ASHLAR_ENCRYPT          1: encrypt connections
//	ASHLAR_TRUSTED_NETWORK  1: other machines may connect without a secret
//	ASHLAR_LISTEN           the Config's Listen
func FromEnv(lookup func(string) (string, bool)) (Config, bool, error) {
	e := &environment{lookup: lookup}
	switch {
	case e.has("RANK"), e.has("WORLD_SIZE") && !e.has("OMPI_COMM_WORLD_RANK") && !e.has("PMI_RANK") &&
		!e.has("SLURM_PROCID"):
		e.launcher = "torchrun"
		e.number(&e.c.Rank, "RANK")
		e.number(&e.c.Size, "WORLD_SIZE")
		e.optional(&e.c.LocalRank, "LOCAL_RANK")
		e.optional(&e.c.LocalSize, "LOCAL_WORLD_SIZE")
		e.optional(&e.c.Node, "GROUP_RANK")
		e.optional(&e.c.Restart, "TORCHELASTIC_RESTART_COUNT")
		e.master()
		e.need("MASTER_ADDR")
		e.need("MASTER_PORT")
	case e.has("OMPI_COMM_WORLD_RANK"), e.has("OMPI_COMM_WORLD_SIZE"):
		e.launcher = "Open MPI"
		e.number(&e.c.Rank, "OMPI_COMM_WORLD_RANK")
		e.number(&e.c.Size, "OMPI_COMM_WORLD_SIZE")
		e.optional(&e.c.LocalRank, "OMPI_COMM_WORLD_LOCAL_RANK")
		e.optional(&e.c.LocalSize, "OMPI_COMM_WORLD_LOCAL_SIZE")
		e.meet(e.text("PMIX_NAMESPACE"))
	case e.has("PMI_RANK"), e.has("PMI_SIZE"):
		e.launcher = "MPICH"
		e.number(&e.c.Rank, "PMI_RANK")
		e.number(&e.c.Size, "PMI_SIZE")
		e.optional(&e.c.LocalRank, "MPI_LOCALRANKID")
		e.optional(&e.c.LocalSize, "MPI_LOCALNRANKS")
		e.meet("")
	case e.has("SLURM_PROCID") && (e.has("SLURM_STEP_ID") || e.has("SLURM_STEPID") || e.has("SLURM_STEP_NODELIST")):
		e.launcher = "Slurm"
		e.number(&e.c.Rank, "SLURM_PROCID")
		if e.has("SLURM_STEP_NUM_TASKS") { // of this step; SLURM_NTASKS may be that of the job
			e.number(&e.c.Size, "SLURM_STEP_NUM_TASKS")
		} else {
			e.number(&e.c.Size, "SLURM_NTASKS")
		}
		e.optional(&e.c.LocalRank, "SLURM_LOCALID")
		e.optional(&e.c.Node, "SLURM_NODEID")
		e.meet("")
	default:
		return Config{}, false, nil
	}
	e.trust()
	if err := e.failure(); err != nil {
		return Config{}, false, err
	}
	if err := errors.Join(e.c.check(), e.c.checkAddress()); err != nil {
		return Config{}, false, fmt.Errorf("%w (from what %s set)", err, e.launcher)
	}
	return e.c, true, nil
}

// An environment reads variables with lookup and collects their errors.
type environment struct {
	lookup   func(string) (string, bool)
	launcher string
	c        Config
	missing  []string
	wrong    []string
}

// text returns a variable. An empty variable counts as missing.
func (e *environment) text(name string) string {
	v, _ := e.lookup(name)
	return strings.TrimSpace(v)
}

func (e *environment) has(name string) bool { return e.text(name) != "" }

func (e *environment) need(name string) {
	if !e.has(name) {
		e.missing = append(e.missing, name)
	}
}

func (e *environment) number(to *int, name string) {
	e.need(name)
	e.optional(to, name)
}

func (e *environment) optional(to *int, name string) {
	v := e.text(name)
	if v == "" {
		return
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		e.wrong = append(e.wrong, fmt.Sprintf("%s is %q: want a number from 0", name, v))
		return
	}
	*to = n
}

func (e *environment) failure() error {
	if len(e.missing) > 0 {
		e.wrong = append(e.wrong, "missing "+strings.Join(e.missing, ", "))
	}
	if len(e.wrong) == 0 {
		return nil
	}
	return refuse(ErrConfig, "FromEnv", "launched by %s: %s", e.launcher, strings.Join(e.wrong, "; "))
}

// master sets the meeting point from MASTER_ADDR and MASTER_PORT, and reports whether both are set.
func (e *environment) master() bool {
	addr, port := e.text("MASTER_ADDR"), 0
	e.optional(&port, "MASTER_PORT")
	if port > maxPort {
		e.wrong = append(e.wrong, fmt.Sprintf("MASTER_PORT is %d: want a port from 1 to %d", port, maxPort))
		port = 0
	}
	if addr == "" || port == 0 {
		return false
	}
	e.c.ID = shorten(fmt.Sprintf("%d@%s", port, e.text("TORCHELASTIC_RUN_ID")))
	e.c.Ports = 1
	if strings.EqualFold(e.text("TORCHELASTIC_USE_AGENT_STORE"), "true") {
		if e.c.Ports = portSpan; port+agentOffset+portSpan-1 <= maxPort {
			port += agentOffset
		} else {
			port -= agentOffset
		}
	}
	if e.c.LocalSize == e.c.Size && !rendezvous.IsLoopback(addr) {
		addr = loopback
	}
	e.c.Address = net.JoinHostPort(addr, strconv.Itoa(port))
	return true
}

// trust reads the variables of Ashlar's own.
func (e *environment) trust() {
	e.c.Secret, e.c.SecretFile = Secret(e.text("ASHLAR_SECRET")), e.text("ASHLAR_SECRET_FILE")
	e.c.Listen = e.text("ASHLAR_LISTEN")
	for name, to := range map[string]*bool{
		"ASHLAR_ENCRYPT": &e.c.Encrypt, "ASHLAR_TRUSTED_NETWORK": &e.c.TrustedNetwork,
	} {
		switch v := e.text(name); v {
		case "", "0":
		case "1":
			*to = true
		default:
			e.wrong = append(e.wrong, fmt.Sprintf("%s is %q: want 1 or 0", name, v))
		}
	}
}

// meet determines rank 0's address if the launcher does not set it. job is the launcher's name for the run, or empty.
func (e *environment) meet(job string) {
	if job == "" && e.has("SLURM_JOB_ID") {
		job = "slurm." + e.text("SLURM_JOB_ID") + "." + e.text("SLURM_STEP_ID")
	}
	if e.master() {
		e.c.ID = shorten(e.c.ID + job)
		return
	}
	host := firstHost(e.text("SLURM_STEP_NODELIST"))
	if host == "" {
		host = firstHost(e.text("SLURM_JOB_NODELIST"))
	}
	if host == "" || e.c.LocalSize == e.c.Size {
		host = loopback
		if e.c.LocalSize != e.c.Size && e.c.Size > 1 {
			e.missing = append(e.missing, "MASTER_ADDR, MASTER_PORT (a free port of rank 0's machine)")
		}
	}
	h := fnv.New32a()
	h.Write([]byte(job))
	port := firstPort + int(h.Sum32()%portGroups)*portSpan
	e.c.ID, e.c.Ports = shorten(job), portSpan
	e.c.Address = net.JoinHostPort(host, strconv.Itoa(port))
}

// shorten cuts an ID to the maximum length of Config.ID.
func shorten(id string) string { return id[:min(len(id), maxID)] }

// firstHost returns the first name of a host list in Slurm's notation: node003 for "node[003-010,012],gpu7".
func firstHost(list string) string {
	var name strings.Builder
	for i := 0; i < len(list); i++ {
		switch list[i] {
		case ',':
			return name.String()
		case '[':
			inside, rest, _ := strings.Cut(list[i+1:], "]")
			end := strings.IndexAny(inside, "-,")
			if end < 0 {
				end = len(inside)
			}
			name.WriteString(inside[:end])
			i = len(list) - len(rest) - 1
		default:
			name.WriteByte(list[i])
		}
	}
	return name.String()
}
