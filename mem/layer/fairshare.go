package layer

import (
	"cmp"
	"slices"
)

// divide computes the fair share of each tenant: its reservation, and an equal part of the unreserved total. What a
// limit leaves of a part is divided among the others. The caller holds mu.
func (q *Quotas) divide() {
	rest := q.total
	for _, t := range q.tenants {
		rest -= t.reserved
	}
	byRoom := slices.Clone(q.tenants)
	slices.SortFunc(byRoom, func(a, b *Tenant) int { return cmp.Compare(a.limit-a.reserved, b.limit-b.reserved) })
	for i, t := range byRoom {
		part := min(t.limit-t.reserved, rest/int64(len(byRoom)-i))
		t.fair = t.reserved + part
		rest -= part
	}
}

// claim records that a request for a block of size bytes, within the tenant's fair share, found no room. The caller
// holds mu.
func (t *Tenant) claim(size int64) {
	t.claimed, t.claimedAt = size, t.quotas.freed
}

// endClaim ends the tenant's claim, which makes room for others. The caller holds mu.
func (t *Tenant) endClaim() {
	if t.claimed > 0 {
		t.claimed = 0
		t.quotas.gate.Wake()
	}
}

// claims returns the bytes that other tenants claim. The caller holds mu.
func (q *Quotas) claims(but *Tenant) (sum int64) {
	for _, t := range q.tenants {
		if t.claimed > 0 && q.freed-t.claimedAt >= q.total {
			t.claimed = 0
		}
		if t != but && t.claimed > 0 {
			sum += max(t.share(t.live+t.claimed)-t.share(t.live), 0)
		}
	}
	return sum
}

// overShare returns the tenants above their fair shares that can give memory back, those with the most first.
func (q *Quotas) overShare() (over []*Tenant) {
	q.mu.Lock()
	defer q.mu.Unlock()
	excess := map[*Tenant]int64{}
	for _, t := range q.tenants {
		if t.live > t.fair && t.giveBack != nil {
			over = append(over, t)
			excess[t] = t.live - t.fair
		}
	}
	slices.SortStableFunc(over, func(a, b *Tenant) int { return cmp.Compare(excess[b], excess[a]) })
	return over
}

// press asks the tenants above their fair shares to give memory back, one after the other, until a request for size
// bytes has found room, which try reports.
func (q *Quotas) press(size int64, try func() (done bool)) {
	for _, t := range q.overShare() {
		q.mu.Lock()
		giveBack := t.giveBack
		q.mu.Unlock()
		if giveBack == nil {
			continue
		}
		giveBack(size)
		if try() {
			return
		}
	}
}
