package export

import (
	"fmt"
	"strings"

	"github.com/ashlar-go/ashlar/holders"
	"github.com/ashlar-go/ashlar/trace"
)

// A profile is a message Profile under construction: https://github.com/google/pprof/blob/main/proto/profile.proto.
type profile struct {
	strings   map[string]int64
	table     []string // the strings by number
	functions map[[2]string]int64
	locations map[trace.Frame]int64
	out       message
}

func (p *profile) string(s string) int64 {
	n, ok := p.strings[s]
	if !ok {
		n = int64(len(p.table))
		p.table = append(p.table, strings.ToValidUTF8(s, "\ufffd"))
		p.strings[s] = n
	}
	return n
}

// Field numbers of the messages of a profile.
const (
	profileSampleType, profileSample, profileMapping, profileLocation, profileFunction, profileString = 1, 2, 3, 4, 5, 6
	profileTime, profileDuration, profilePeriodType, profilePeriod                                    = 9, 10, 11, 12
	profileComment, profileDefaultType                                                                = 13, 14

	valueTypeType, valueTypeUnit                              = 1, 2
	sampleLocation, sampleValue, sampleLabel                  = 1, 2, 3
	labelKey, labelString                                     = 1, 2
	mappingID, mappingFilename                                = 1, 5
	mappingHasFunctions, mappingHasFilenames, mappingHasLines = 7, 8, 9
	locationID, locationMapping, locationLine                 = 1, 2, 4
	lineFunction, lineLine                                    = 1, 2
	functionID, functionName, functionFilename                = 1, 2, 4
)

// newProfile returns a profile without samples.
func newProfile() *profile {
	p := &profile{strings: map[string]int64{}, functions: map[[2]string]int64{}, locations: map[trace.Frame]int64{}}
	p.string("") // must be the first
	for _, t := range sampleTypes {
		p.out.embed(profileSampleType, p.valueType(t))
	}
	return p
}

// encode completes the profile and returns it.
func (p *profile) encode(views []*holders.View) []byte {
	var mapping message
	mapping.number(mappingID, 1)
	mapping.number(mappingFilename, p.string("device memory"))
	for _, has := range []int{mappingHasFunctions, mappingHasFilenames, mappingHasLines} { // no symbol lookup
		mapping.number(has, 1)
	}
	p.out.embed(profileMapping, mapping)
	first, last := span(views)
	p.out.number(profileTime, first*1000)
	p.out.number(profileDuration, (last-first)*1000)
	p.out.embed(profilePeriodType, p.valueType([2]string{"space", "bytes"}))
	p.out.number(profilePeriod, 1)
	for _, v := range views {
		p.out.number(profileComment, p.string(fmt.Sprintf("device %d at %v", v.Device(), v.Moment)))
	}
	p.out.number(profileDefaultType, p.string("inuse_space"))
	for _, s := range p.table {
		p.out.text(profileString, s)
	}
	return p.out
}

// span returns the earliest and the latest time of all events with a time, in microseconds, or zeros.
func span(views []*holders.View) (first, last int64) {
	for _, v := range views {
		v.History().Trace.EachTime(func(_ int, times []uint64) {
			for _, t := range times {
				us := int64(t)
				if us != 0 && (first == 0 || us < first) {
					first = us
				}
				last = max(last, us)
			}
		})
	}
	return first, last
}

func (p *profile) valueType(t [2]string) message {
	var m message
	m.number(valueTypeType, p.string(t[0]))
	m.number(valueTypeUnit, p.string(t[1]))
	return m
}

func (p *profile) sample(h *holders.History, k *usageKey, u *usage) {
	var at []int64
	for _, f := range h.Frames.Outward(k.stack) {
		at = append(at, p.location(f))
	}
	if len(at) == 0 {
		at = []int64{p.location(trace.Frame{Name: holders.NoStack(k.recorded)})}
	}
	var m message
	m.numbers(sampleLocation, at...)
	m.numbers(sampleValue, u.allocObjects, u.allocBytes, u.inUseObjects, u.inUseBytes, u.soonObjects, u.soonBytes)
	for _, l := range [][2]string{
		{"device", fmt.Sprint(k.device)},
		{"stream", fmt.Sprintf("%#x", k.stream)},
		{"pool", k.pool.String()},
		{"category", k.category.String()},
		{"tag", k.tag},
	} {
		if l[1] == "" {
			continue
		}
		var label message
		label.number(labelKey, p.string(l[0]))
		label.number(labelString, p.string(l[1]))
		m.embed(sampleLabel, label)
	}
	p.out.embed(profileSample, m)
}

// location returns the number of a frame. It writes the frame on its first use.
func (p *profile) location(f trace.Frame) int64 {
	id, ok := p.locations[f]
	if ok {
		return id
	}
	id = int64(len(p.locations) + 1)
	p.locations[f] = id
	var line, m message
	line.number(lineFunction, p.function(f))
	line.number(lineLine, f.Line)
	m.number(locationID, id)
	m.number(locationMapping, 1)
	m.embed(locationLine, line)
	p.out.embed(profileLocation, m)
	return id
}

func (p *profile) function(f trace.Frame) int64 {
	key := [2]string{f.Name, f.Filename}
	id, ok := p.functions[key]
	if ok {
		return id
	}
	id = int64(len(p.functions) + 1)
	p.functions[key] = id
	var m message
	m.number(functionID, id)
	// The system name is omitted: pprof would take "<module>" in it for the arguments of a C++ template and remove it.
	m.number(functionName, p.string(f.Name))
	m.number(functionFilename, p.string(f.Filename))
	p.out.embed(profileFunction, m)
	return id
}
