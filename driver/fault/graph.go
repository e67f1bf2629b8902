package fault

import "github.com/ashlar-go/ashlar/driver"

// graphs wraps the inner device's.
type graphs struct {
	d     *Device
	inner driver.Graphs
}

func (g graphs) Begin(s driver.Stream) error {
	if err := g.d.call(Begin); err != nil {
		return err
	}
	return g.inner.Begin(g.d.inside(s))
}

// End that fails by rule ends the inner capture all the same, so that the stream is an ordinary one again.
func (g graphs) End(s driver.Stream) (driver.Graph, error) {
	failed := g.d.call(End)
	inner, err := g.inner.End(g.d.inside(s))
	switch {
	case failed != nil && err == nil:
		_ = inner.Close() // the rule's error is the one to see
		return nil, failed
	case failed != nil:
		return nil, failed
	case err != nil:
		return nil, err
	}
	return graph{g.d, inner}, nil
}

func (g graphs) Capturing(s driver.Stream) (bool, error) {
	if err := g.d.call(Capturing); err != nil {
		return false, err
	}
	return g.inner.Capturing(g.d.inside(s))
}

func (g graphs) Ordered(other driver.Stream, m driver.Mark, s driver.Stream) (bool, error) {
	if err := g.d.call(Ordered); err != nil {
		return false, err
	}
	return g.inner.Ordered(g.d.inside(other), m, g.d.inside(s))
}

// graph wraps one of the inner device.
type graph struct {
	d     *Device
	inner driver.Graph
}

func (g graph) Launch(s driver.Stream) error {
	if err := g.d.call(LaunchGraph); err != nil {
		return err
	}
	return g.inner.Launch(g.d.inside(s))
}

// Nodes is the inner graph's, uncounted: it cannot fail.
func (g graph) Nodes() int { return g.inner.Nodes() }

// Close that fails leaves the graph as it is.
func (g graph) Close() error {
	if err := g.d.call(CloseGraph); err != nil {
		return err
	}
	return g.inner.Close()
}
