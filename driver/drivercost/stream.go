package drivercost

import (
	"context"

	"github.com/ashlar-go/ashlar/driver"
)

// batch is the number of short calls that are timed in a row. It is well below the number at which the queue of a GPU's
// stream is full.
const batch = 64

// sync waits for the work on the meter's stream.
func (m *meter) sync() error { return m.s.Sync(context.Background()) }

// onIdle calls f with no work queued, and waits for the work of f.
func (m *meter) onIdle(f func() error) error {
	if err := m.sync(); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return m.sync()
}

// streams measures streams, and marks and waits on them.
func (m *meter) streams() error {
	opening, closing := m.figure("NewStream", 0, 0), m.figure("Stream.Close", 0, 0)
	made := make([]driver.Stream, 8)
	err := m.measure(func() error {
		err := opening.time(len(made), func() error {
			return repeat(len(made), func(i int) (err error) {
				made[i], err = m.d.NewStream(driver.StreamOptions{})
				return err
			})
		})
		if err != nil {
			return err
		}
		return closing.time(len(made), func() error {
			return repeat(len(made), func(i int) error { return made[i].Close() })
		})
	}, opening, closing)
	if err != nil {
		return err
	}
	other, err := m.d.NewStream(driver.StreamOptions{})
	if err != nil {
		return err
	}
	if err := m.marks(other); err != nil {
		return err
	}
	return other.Close()
}

// marks measures Mark, WaitFor of marks that are most likely not reached yet, Reached of a reached mark, and Sync
// without queued work.
func (m *meter) marks(other driver.Stream) error {
	size := min(256*mib, m.free/4)
	p, err := m.d.Alloc(size)
	if err != nil {
		return err
	}
	mark, waiting := m.figure("Stream.Mark", 0, 0), m.figure("Stream.WaitFor", 0, 0)
	reached, idle := m.figure("Stream.Reached", 0, 0), m.figure("Stream.Sync", 0, 0)
	marks := make([]driver.Mark, batch)
	err = m.measure(func() error {
		busy := func() error { return m.s.Fill(p, 1, size) } // so that marks are not reached at once
		take := func() error {
			return repeat(batch, func(i int) (err error) { marks[i], err = m.s.Mark(); return err })
		}
		if err := m.onIdle(func() error { return mark.time(batch, take) }); err != nil {
			return err
		}
		if err := repeat(2, func(int) error { return busy() }); err != nil {
			return err
		}
		if err := take(); err != nil {
			return err
		}
		wait := func() error {
			return repeat(batch, func(i int) error { return other.WaitFor(m.s, marks[i]) })
		}
		if err := waiting.time(batch, wait); err != nil {
			return err
		}
		if err := other.Sync(context.Background()); err != nil {
			return err
		}
		if err := m.sync(); err != nil {
			return err
		}
		ask := func() error {
			return repeat(batch, func(int) error { _, err := m.s.Reached(marks[batch-1]); return err })
		}
		if err := reached.time(batch, ask); err != nil {
			return err
		}
		return idle.time(batch, func() error { return repeat(batch, func(int) error { return m.sync() }) })
	}, mark, waiting, reached, idle)
	if err != nil {
		return err
	}
	return m.d.Free(p)
}

// kernels measures the launch of an empty kernel on devices whose kernels are Go functions; other devices would need
// compiled code.
func (m *meter) kernels() error {
	k := m.d.Kernels()
	if k == nil {
		m.report.Absent = append(m.report.Absent, "Kernels: the device has none")
		return nil
	}
	launch := m.figure("Kernels.Launch", 0, 0)
	nothing := driver.Kernel{Name: "nothing", Func: func(driver.Memory) error { return nil }}
	return m.measure(func() error {
		return m.onIdle(func() error {
			return launch.time(batch, func() error {
				return repeat(batch, func(int) error { return k.Launch(m.s, nothing) })
			})
		})
	}, launch)
}

// timing measures stamps.
func (m *meter) timing() error {
	timing := m.d.Timing()
	if timing == nil {
		m.report.Absent = append(m.report.Absent, "Timing: the device has no clock")
		return nil
	}
	stamp, discard := m.figure("Timing.Stamp", 0, 0), m.figure("Timing.Discard", 0, 0)
	elapsed := m.figure("Timing.Elapsed", 0, 0)
	stamps := make([]driver.Stamp, batch)
	return m.measure(func() error {
		err := m.onIdle(func() error {
			return stamp.time(batch, func() error {
				return repeat(batch, func(i int) (err error) { stamps[i], err = timing.Stamp(m.s); return err })
			})
		})
		if err != nil {
			return err
		}
		err = elapsed.time(batch, func() error {
			return repeat(batch, func(i int) error { _, err := timing.Elapsed(stamps[0], stamps[i]); return err })
		})
		if err != nil {
			return err
		}
		return discard.time(batch, func() error {
			return repeat(batch, func(i int) error { return timing.Discard(stamps[i]) })
		})
	}, stamp, elapsed, discard)
}

// graphs measures captures and launches by the number of work items, which are fills of one byte.
func (m *meter) graphs() error {
	graphs := m.d.Graphs()
	if graphs == nil {
		m.report.Absent = append(m.report.Absent, "Graphs: the device has none")
		return nil
	}
	p, err := m.d.Alloc(1)
	if err != nil {
		return err
	}
	begin := m.figure("Graphs.Begin", 0, 0)
	for _, n := range []int{1, 16, 128} {
		end, launch, closing := m.figure("Graphs.End", 0, n), m.figure("Graph.Launch", 0, n),
			m.figure("Graph.Close", 0, n)
		figures := []*figure{end, launch, closing}
		if n == 1 {
			figures = append([]*figure{begin}, figures...)
		}
		err := m.measure(func() error {
			if err := begin.time(1, func() error { return graphs.Begin(m.s) }); err != nil {
				return err
			}
			if err := repeat(n, func(int) error { return m.s.Fill(p, 1, 1) }); err != nil {
				return err
			}
			var g driver.Graph
			if err := end.time(1, func() (err error) { g, err = graphs.End(m.s); return err }); err != nil {
				return err
			}
			err := m.onIdle(func() error {
				if err := g.Launch(m.s); err != nil { // the first launch prepares the graph
					return err
				}
				return m.onIdle(func() error {
					return launch.time(4, func() error { return repeat(4, func(int) error { return g.Launch(m.s) }) })
				})
			})
			if err != nil {
				return err
			}
			return closing.time(1, g.Close)
		}, figures...)
		if err != nil {
			return err
		}
	}
	return m.d.Free(p)
}
