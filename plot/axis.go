package plot

import (
	"strconv"
	"strings"
	"time"
)

// stepOf returns the smallest of the steps 1, 2, 5, 10, 20, ... times unit with at most n steps to top.
func stepOf(top, unit float64, n int) float64 {
	step := unit
	for {
		for _, factor := range []float64{1, 2, 5} {
			if top/(step*factor) <= float64(n) {
				return step * factor
			}
		}
		step *= 10
	}
}

// sizeUnits are the units of scales of sizes, in bytes.
var sizeUnits = []struct {
	name  string
	bytes float64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// sizeLines calls line for each line of a scale of sizes from 0 to top: 0, 5 GiB, 10 GiB.
func sizeLines(top float64, line func(bytes float64, text string)) {
	name, unit, least := "B", 1.0, 1.0
	for _, u := range sizeUnits {
		if top >= 1.5*u.bytes {
			name, unit, least = u.name, u.bytes, 0.5
			break
		}
	}
	step := max(stepOf(top/unit, 0.1, 6), least)
	for i := 0; float64(i)*step <= top/unit; i++ {
		text := "0"
		if i > 0 {
			text = strconv.FormatFloat(float64(i)*step, 'f', -1, 64) + " " + name
		}
		line(float64(i)*step*unit, text)
	}
}

// timeSteps are the distances of lines between those of seconds and those of hours.
var timeSteps = []time.Duration{
	20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute, time.Hour,
}

// timeStep returns the distance of the lines of a scale of times.
func timeStep(span time.Duration) time.Duration {
	const n = 6
	if span <= n*10*time.Second {
		return time.Duration(stepOf(float64(span), float64(time.Microsecond), n))
	}
	for _, step := range timeSteps {
		if span <= n*step {
			return step
		}
	}
	return time.Duration(stepOf(float64(span), float64(time.Hour), n))
}

// timeText writes 2m instead of 2m0s.
func timeText(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	text := d.String()
	for _, zero := range []string{"0s", "0m"} {
		if strings.HasSuffix(text, "m"+zero) || strings.HasSuffix(text, "h"+zero) {
			text = strings.TrimSuffix(text, zero)
		}
	}
	return text
}

// axis draws the scale of events or times below a chart whose lower edge is at y.
func (p *painter) axis(c *columns, y float64) {
	what := "event of the recording"
	place := func(x float64, text string) {
		p.line(paintAxis, 1, point{x, y}, point{x, y + 4})
		p.text(label{x: x, y: y + 18, text: text, style: textNote, align: alignMiddle})
	}
	if from, to := c.h.Since(c.first), c.h.Since(c.last); c.timed {
		what = "time since the start of the recording"
		step := timeStep(to - from)
		for at := (from + step - 1) / step * step; at <= to; at += step {
			place(chartLeft+float64(at-from)/float64(to-from)*chartWidth, timeText(at))
		}
	} else if c.last > c.first {
		step := int(stepOf(float64(c.last-c.first), 1, 6))
		for e := (c.first + step - 1) / step * step; e <= c.last; e += step {
			place(chartLeft+c.position(e)*chartWidth, grouped(e))
		}
	}
	p.line(paintAxis, 1, point{chartLeft, y}, point{chartRight, y})
	if c.last > c.first {
		p.text(label{
			x: chartLeft + chartWidth/2, y: y + 36, text: what, style: textNote, align: alignMiddle,
		})
	}
}

// grouped writes 43,035.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
