package drivercost

// small is the size of the copies whose calls are timed, not their work.
const small = 512

// queued measures a call that queues a copy or fill of up to limit bytes: the time until the call returns, and the time
// until the work is done.
func (m *meter) queued(call string, limit int64, queue func(size int64) error) error {
	returns := m.figure(call, small, 0)
	err := m.measure(func() error {
		return m.onIdle(func() error {
			return returns.time(batch, func() error { return repeat(batch, func(int) error { return queue(small) }) })
		})
	}, returns)
	if err != nil {
		return err
	}
	for _, size := range upTo(limit, mib, 16*mib, 64*mib, 256*mib, gib) {
		done := m.figure(call, size, 0)
		done.Done = true
		err := m.measure(func() error {
			return m.onIdle(func() error {
				return done.time(1, func() error {
					if err := queue(size); err != nil {
						return err
					}
					return m.sync()
				})
			})
		}, done)
		if err != nil {
			return err
		}
	}
	return nil
}

// copies measures Copy, Fill, CopyIn and CopyOut. It uses two device blocks of the largest copy size, and ordinary host
// memory.
func (m *meter) copies() error {
	limit := min(gib, m.free/4)
	to, err := m.d.Alloc(limit)
	if err != nil {
		return err
	}
	from, err := m.d.Alloc(limit)
	if err != nil {
		return err
	}
	if err := m.s.Fill(from, 1, limit); err != nil { // so that memory is behind it
		return err
	}
	err = m.queued("Stream.Copy", limit, func(size int64) error { return m.s.Copy(to, from, size) })
	if err != nil {
		return err
	}
	err = m.queued("Stream.Fill", limit, func(size int64) error { return m.s.Fill(to, 1, size) })
	if err != nil {
		return err
	}
	host := touched(make([]byte, m.hostLimit()))
	for _, size := range upTo(int64(len(host)), small, mib, 16*mib, 64*mib, 256*mib) {
		in, out := m.figure("Stream.CopyIn", size, 0), m.figure("Stream.CopyOut", size, 0)
		err := m.measure(func() error {
			err := m.onIdle(func() error {
				return in.time(1, func() error { return m.s.CopyIn(to, host[:size]) })
			})
			if err != nil {
				return err
			}
			return out.time(1, func() error { return m.s.CopyOut(host[:size], to) })
		}, in, out)
		if err != nil {
			return err
		}
	}
	if err := m.d.Free(from); err != nil {
		return err
	}
	return m.d.Free(to)
}

// hostLimit returns the maximum host memory to use, in bytes.
func (m *meter) hostLimit() int64 { return min(256*mib, m.free/32) }

// touched writes to every page of a slice, so that memory is behind it.
func touched(b []byte) []byte {
	for i := 0; i < len(b); i += 4 * kib {
		b[i] = byte(i >> 12)
	}
	return b
}

// pinned measures AllocHost and FreeHost by size.
func (m *meter) pinned() error {
	pinned := m.d.Pinned()
	if pinned == nil {
		m.report.Absent = append(m.report.Absent, "Pinned: the device has none")
		return nil
	}
	for _, size := range upTo(m.hostLimit(), 64*kib, mib, 16*mib, 64*mib, 256*mib) {
		alloc, free := m.figure("Pinned.AllocHost", size, 0), m.figure("Pinned.FreeHost", size, 0)
		err := m.measure(func() error {
			var b []byte
			if err := alloc.time(1, func() (err error) { b, err = pinned.AllocHost(size); return err }); err != nil {
				return err
			}
			return free.time(1, func() error { return pinned.FreeHost(b) })
		}, alloc, free)
		if err != nil {
			return err
		}
	}
	return nil
}

// pinnedCopies measures the copies from and to page-locked memory.
func (m *meter) pinnedCopies() error {
	pinned := m.d.Pinned()
	if pinned == nil {
		return nil
	}
	limit := m.hostLimit()
	host, err := pinned.AllocHost(limit)
	if err != nil {
		return err
	}
	touched(host)
	p, err := m.d.Alloc(limit)
	if err != nil {
		return err
	}
	err = m.queued("Pinned.CopyInAsync", limit, func(size int64) error {
		return pinned.CopyInAsync(m.s, p, host[:size])
	})
	if err != nil {
		return err
	}
	err = m.queued("Pinned.CopyOutAsync", limit, func(size int64) error {
		return pinned.CopyOutAsync(m.s, host[:size], p)
	})
	if err != nil {
		return err
	}
	if err := m.d.Free(p); err != nil {
		return err
	}
	return pinned.FreeHost(host)
}
