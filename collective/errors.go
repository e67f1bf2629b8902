package collective

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
	"github.com/ashlar-go/ashlar/collective/internal/ring"
)

// Errors of operations, of Join and of ranks match one of these. Their texts have the details, with the operands or
// ranks.
var (
	ErrShape    = errors.New("shapes do not fit")
	ErrType     = errors.New("element types do not fit")
	ErrDevice   = errors.New("devices differ")
	ErrLayout   = errors.New("elements are not contiguous or share memory")
	ErrRank     = errors.New("no such rank")
	ErrMismatch = errors.New("ranks make different calls")
	ErrConfig   = errors.New("the configuration is not valid")
	ErrRankLost = errors.New("a rank was lost")    // matched by *RankError
	ErrJoin     = errors.New("ranks did not meet") // matched by *JoinError
	ErrClosed   = errors.New("the communicator is closed")
)

// A RankError is the error of a communicator that ended because a rank died, fell silent or failed. Every rank gets the
// same one. It matches ErrRankLost. Work queued before may have been done or not; its results are undefined.
type RankError struct {
	Rank int
	Host string // the name of its machine
	Err  error  // the detected failure, or the rank's own error
}

func (e *RankError) Error() string {
	return fmt.Sprintf("collective: rank %d on %s is lost: %v", e.Rank, e.Host, e.Err)
}

// Unwrap returns ErrRankLost and Err.
func (e *RankError) Unwrap() []error { return []error{ErrRankLost, e.Err} }

// A JoinError is the error of a failed Join or Local. Every rank that joined gets one. It matches ErrJoin, and Err.
type JoinError struct {
	Address string   // the address of rank 0, as configured or found
	Missing []int    // the ranks that did not join, ascending; nil if that was not the reason, or is unknown
	Refused []string // the first few ranks that rank 0 refused, with the reasons
	Err     error    // the reason
}

func (e *JoinError) Error() string {
	var b strings.Builder
	b.WriteString("collective: join")
	if e.Address != "" {
		b.WriteString(" at " + e.Address)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if len(e.Missing) > 0 {
		fmt.Fprintf(&b, "; missing: %s", ranks(e.Missing))
	}
	if len(e.Refused) > 0 {
		fmt.Fprintf(&b, "; turned away: %s", strings.Join(e.Refused, "; "))
	}
	return b.String()
}

// Unwrap returns ErrJoin and Err.
func (e *JoinError) Unwrap() []error { return []error{ErrJoin, e.Err} }

// ranks formats a list of ranks: "ranks 1, 4 to 7".
func ranks(list []int) string {
	list = slices.Sorted(slices.Values(list))
	var runs []string
	for i := 0; i < len(list); {
		j := i
		for j+1 < len(list) && list[j+1] == list[j]+1 {
			j++
		}
		switch j - i {
		case 0:
			runs = append(runs, fmt.Sprint(list[i]))
		case 1:
			runs = append(runs, fmt.Sprint(list[i]), fmt.Sprint(list[j]))
		default:
			runs = append(runs, fmt.Sprintf("%d to %d", list[i], list[j]))
		}
		i = j + 1
	}
	if len(list) == 1 {
		return "rank " + runs[0]
	}
	return "ranks " + strings.Join(runs, ", ")
}

// mismatch is the code of a failure that is not the failure of a single rank.
const mismatch = "mismatch"

// publicError converts an error of package rendezvous or of this rank to the one that users see.
func publicError(err error) error {
	if differ := (*ring.MismatchError)(nil); errors.As(err, &differ) {
		return refuse(ErrMismatch, "calls of the ranks", "%v", differ)
	}
	var lost *rendezvous.LostError
	if errors.As(err, &lost) {
		if lost.Code == mismatch {
			return refuse(ErrMismatch, "calls of the ranks", "%v", lost.Err)
		}
		return &RankError{Rank: lost.Rank, Host: lost.Host, Err: lost.Err}
	}
	var failed *rendezvous.MeetError
	if errors.As(err, &failed) {
		return &JoinError{Address: failed.Address, Missing: failed.Missing, Refused: failed.Refused, Err: failed.Err}
	}
	return err
}

// A refusal is the error of an operation that is not possible.
type refusal struct {
	op, text string
	kind     error
}

func (e *refusal) Error() string { return "collective: " + e.op + ": " + e.text }

func (e *refusal) Unwrap() error { return e.kind }

func refuse(kind error, op, format string, args ...any) error {
	return &refusal{op, fmt.Sprintf(format, args...), kind}
}
