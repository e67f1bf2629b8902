package metrics

import (
	"slices"
	"strings"
)

// A Type is the kind of a metric.
type Type string

const (
	Gauge   Type = "gauge"   // a current value
	Counter Type = "counter" // a total since the start or the last reset; it only increases
)

// A Metric is a row of the table of metrics.
type Metric struct {
	Name   string // in Prometheus, with unit and _total
	Type   Type
	Unit   string   // of the exported samples: bytes, seconds, blocks; empty if the name says what is counted
	Labels []string // without the additional labels of a source
	Help   string   // one sentence, without a full stop
	Adds   bool     // a gauge whose samples may be summed, such as a size; not a peak
	Per    int64    // the Sample.Value of one Unit: 1, or 1e6 for seconds

	index int
}

// Metrics returns the table of all metrics in output order. The caller must not change the elements.
func Metrics() []*Metric { return slices.Clone(table) }

// table is filled by the declarations below, in their order.
var table []*Metric

// ownLabels are the reserved label names: Labels.More must not contain them.
var ownLabels = []string{"device", "allocator", "tenant", "pool", "call"}

var (
	ofDevice = []string{"device"}
	ofSource = []string{"device", "allocator"}
	byPool   = []string{"device", "allocator", "pool"}
	byCall   = []string{"device", "allocator", "call"}
	ofTenant = []string{"device", "allocator", "tenant"}
)

func define(m Metric) *Metric {
	m.Per = 1
	if m.Unit == "seconds" {
		m.Per = 1_000_000
	}
	m.index = len(table)
	table = append(table, &m)
	return &m
}

// The value of a counter only increases. The samples of a gauge may be summed. Those of a level must not.
func counter(name, unit string, labels []string, help string) *Metric {
	return define(Metric{Name: name, Type: Counter, Unit: unit, Labels: labels, Help: help})
}

func gauge(name, unit string, labels []string, help string) *Metric {
	return define(Metric{Name: name, Type: Gauge, Unit: unit, Labels: labels, Help: help, Adds: true})
}

func level(name, unit string, labels []string, help string) *Metric {
	return define(Metric{Name: name, Type: Gauge, Unit: unit, Labels: labels, Help: help})
}

// A quantity is the four metrics of a mem.Stat. The metrics added and removed are nil if they are not counted.
type quantity struct {
	now, peak, added, removed *Metric
}

func quantityOf(subsystem, what, unit string, labels []string, meaning string) quantity {
	q := heightOf(subsystem, what, unit, labels, meaning)
	name, which := "ashlar_"+subsystem+"_"+what+"_", q.now.Help
	q.added = counter(name+"added_"+unit+"_total", unit, labels, which+": total added")
	q.removed = counter(name+"removed_"+unit+"_total", unit, labels, which+": total removed")
	return q
}

// heightOf returns a quantity without the metrics added and removed.
func heightOf(subsystem, what, unit string, labels []string, meaning string) quantity {
	name := "ashlar_" + subsystem + "_" + what + "_"
	which := strings.ToUpper(unit[:1]) + unit[1:] + " " + meaning
	return quantity{
		now:  gauge(name+unit, unit, labels, which),
		peak: level(name+"peak_"+unit, unit, labels, which+": highest value since peaks were reset"),
	}
}

// arrays are the quantities of mem.Stats.Arrays, in order. Free pieces and requested bytes have no totals of additions
// and removals: a magazine above an allocator knows only their current values, and its sums can decrease.
var arrays = []quantity{
	quantityOf("memory", "allocated", "blocks", byPool, "allocated"),
	quantityOf("memory", "reserved", "segments", byPool, "reserved from the driver, not counting expandable ones"),
	quantityOf("memory", "active", "blocks", byPool, "allocated or waiting for other streams"),
	heightOf("memory", "inactive_split", "blocks", byPool, "that are free parts of segments in use, which "+
		"cannot be returned to the driver"),
	quantityOf("memory", "allocated", "bytes", byPool, "in allocated blocks"),
	quantityOf("memory", "reserved", "bytes", byPool, "reserved from the driver, in segments and mapped pages"),
	quantityOf("memory", "active", "bytes", byPool, "in allocated blocks or waiting for other streams"),
	heightOf("memory", "inactive_split", "bytes", byPool, "in free parts of segments in use, which cannot "+
		"be returned to the driver"),
	heightOf("memory", "requested", "bytes", byPool, "requested for active blocks, before rounding"),
}

var (
	oversizeBlocks = quantityOf("memory", "oversize", "blocks", ofSource, "that are allocated and at least as large "+
		"as the split limit")
	oversizeSegments = quantityOf("memory", "oversize", "segments", ofSource, "at least as large as the split limit")

	retries = counter("ashlar_memory_retries_total", "", ofSource, "Requests that were retried after the whole "+
		"cache was freed")
	ooms       = counter("ashlar_memory_ooms_total", "", ofSource, "Requests that failed because memory ran out")
	rejections = counter("ashlar_memory_oom_rejections_total", "", ofSource, "Requests refused without a retry, "+
		"because the driver or the limit had no room")
	syncs       = counter("ashlar_memory_stream_syncs_total", "", ofSource, "Waits for all streams")
	driverCalls = counter("ashlar_memory_driver_calls_total", "", byCall, "Segments and pages allocated from the "+
		"driver (alloc) and freed (free)")
	splitLimit = level("ashlar_memory_split_limit_bytes", "bytes", ofSource, "Blocks of at least this size are not "+
		"split; missing if all may be split")

	heldBlocks = gauge("ashlar_memory_held_blocks", "blocks", ofSource, "Freed blocks that a magazine keeps; the "+
		"layer below counts them as allocated")
	heldBytes = gauge("ashlar_memory_held_bytes", "bytes", ofSource, "Bytes in the freed blocks that a magazine keeps")
	limit     = level("ashlar_memory_limit_bytes", "bytes", ofSource, "Lowest limit of the allocator's layers; "+
		"missing if no layer has one")

	measuredBlocks = measure("blocks", "Blocks allocated through a layer.NewCounter")
	measuredBytes  = measure("bytes", "Bytes of blocks allocated through a layer.NewCounter")

	quotaLive     = gauge("ashlar_quota_live_bytes", "bytes", ofTenant, "Bytes that a tenant has allocated")
	quotaReserved = gauge("ashlar_quota_reserved_bytes", "bytes", ofTenant, "Bytes that are guaranteed to a tenant")
	quotaLimit    = gauge("ashlar_quota_limit_bytes", "bytes", ofTenant, "Maximum bytes that a tenant can have")
	quotaPeak     = level("ashlar_quota_peak_bytes", "bytes", ofTenant, "Bytes that a tenant has allocated: highest "+
		"value since the peak was reset")
	quotaShare   = gauge("ashlar_quota_share_bytes", "bytes", ofTenant, "Fair share of a tenant")
	quotaClaimed = gauge("ashlar_quota_claimed_bytes", "bytes", ofTenant, "Bytes that a tenant found missing within "+
		"its fair share, which tenants above theirs cannot take")
	quotaRefused = counter("ashlar_quota_refused_total", "", ofTenant, "Requests that a tenant's quota refused")
	quotaWipes   = counter("ashlar_quota_wipes_total", "", ofTenant, "Blocks of a tenant that were wiped, as a whole or "+
		"in part, because memory changed hands")
	quotaWiped = counter("ashlar_quota_wiped_bytes_total", "bytes", ofTenant, "Bytes that were wiped because memory "+
		"changed hands")

	// Memory from the driver is called allocated in pinned.Stats and reserved here, as for device memory.
	pinnedStats = []quantity{
		quantityOf("pinned", "reserved", "blocks", ofSource, "of page-locked host memory that the allocator "+
			"reserved"),
		quantityOf("pinned", "reserved", "bytes", ofSource, "of page-locked host memory that the allocator "+
			"reserved"),
		quantityOf("pinned", "active", "blocks", ofSource,
			"of page-locked host memory allocated or waiting for streams"),
		quantityOf("pinned", "active", "bytes", ofSource,
			"of page-locked host memory allocated or waiting for streams"),
	}
	pinnedCalls = counter("ashlar_pinned_driver_calls_total", "", byCall, "Driver calls that lock pages (alloc) "+
		"and unlock them (free)")
	pinnedSeconds = counter("ashlar_pinned_driver_time_seconds_total", "seconds", byCall, "Seconds that driver "+
		"calls took to lock pages (alloc) and unlock them (free); 0 without pinned.Config.Clock")
	pinnedMax = level("ashlar_pinned_driver_time_max_seconds", "seconds", byCall, "Seconds that the longest "+
		"driver call took to lock pages (alloc) or unlock them (free), since peaks were reset")
	pinnedMin = level("ashlar_pinned_driver_time_min_seconds", "seconds", byCall, "Seconds that the "+
		"shortest driver call took to lock pages (alloc) or unlock them (free), since peaks were reset; missing if "+
		"no call was timed")

	deviceFree  = gauge("ashlar_device_free_bytes", "bytes", ofDevice, "Free bytes, as the device reports them")
	deviceTotal = gauge("ashlar_device_total_bytes", "bytes", ofDevice, "Total bytes of the device")

	success = level("ashlar_scrape_success", "", ofTenant, "1 if the source answered this scrape, 0 if it failed; "+
		"with the labels of the source")
)

// measure is a quantity of layer.Counter; removals are not reported.
func measure(unit, which string) quantity {
	name := "ashlar_memory_measured_"
	return quantity{
		now:   gauge(name+unit, unit, ofSource, which),
		peak:  level(name+"peak_"+unit, unit, ofSource, which+": highest value"),
		added: counter(name+"added_"+unit+"_total", unit, ofSource, which+": total added"),
	}
}
