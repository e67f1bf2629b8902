package metrics_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/direct"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/metrics"
)

// The page of a program with one tenant that has one allocated block.
func Example() {
	dev, err := driver.Open("sim:total=1GiB")
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	a := direct.New(dev, direct.Config{})
	defer a.Close()
	tenant, err := layer.NewQuotas(a, 512<<20).Tenant("anna", 64<<20, 256<<20)
	if err != nil {
		panic(err)
	}
	b, err := tenant.Alloc(dev.DefaultStream(), 10<<20)
	if err != nil {
		panic(err)
	}
	defer tenant.Free(b)

	var r metrics.Registry
	main := metrics.Labels{Device: "sim:0", Allocator: "main"}
	if _, err := r.AddTenant(main, tenant); err != nil {
		panic(err)
	}
	if _, err := r.AddDevice(metrics.Labels{Device: "sim:0"}, dev.Available); err != nil {
		panic(err)
	}
	if _, err := r.WriteTo(os.Stdout); err != nil {
		panic(err)
	}
	// Output:
	// # HELP ashlar_quota_live_bytes Bytes that a tenant has allocated
	// # TYPE ashlar_quota_live_bytes gauge
	// ashlar_quota_live_bytes{device="sim:0",allocator="main",tenant="anna"} 10485760
	// # HELP ashlar_quota_reserved_bytes Bytes that are guaranteed to a tenant
	// # TYPE ashlar_quota_reserved_bytes gauge
	// ashlar_quota_reserved_bytes{device="sim:0",allocator="main",tenant="anna"} 67108864
	// # HELP ashlar_quota_limit_bytes Maximum bytes that a tenant can have
	// # TYPE ashlar_quota_limit_bytes gauge
	// ashlar_quota_limit_bytes{device="sim:0",allocator="main",tenant="anna"} 268435456
	// # HELP ashlar_quota_peak_bytes Bytes that a tenant has allocated: highest value since the peak was reset
	// # TYPE ashlar_quota_peak_bytes gauge
	// ashlar_quota_peak_bytes{device="sim:0",allocator="main",tenant="anna"} 10485760
	// # HELP ashlar_quota_share_bytes Fair share of a tenant
	// # TYPE ashlar_quota_share_bytes gauge
	// ashlar_quota_share_bytes{device="sim:0",allocator="main",tenant="anna"} 268435456
	// # HELP ashlar_quota_claimed_bytes Bytes that a tenant found missing within its fair share, which tenants above theirs cannot take
	// # TYPE ashlar_quota_claimed_bytes gauge
	// ashlar_quota_claimed_bytes{device="sim:0",allocator="main",tenant="anna"} 0
	// # HELP ashlar_quota_refused_total Requests that a tenant's quota refused
	// # TYPE ashlar_quota_refused_total counter
	// ashlar_quota_refused_total{device="sim:0",allocator="main",tenant="anna"} 0
	// # HELP ashlar_quota_wipes_total Blocks of a tenant that were wiped, as a whole or in part, because memory changed hands
	// # TYPE ashlar_quota_wipes_total counter
	// ashlar_quota_wipes_total{device="sim:0",allocator="main",tenant="anna"} 0
	// # HELP ashlar_quota_wiped_bytes_total Bytes that were wiped because memory changed hands
	// # TYPE ashlar_quota_wiped_bytes_total counter
	// ashlar_quota_wiped_bytes_total{device="sim:0",allocator="main",tenant="anna"} 0
	// # HELP ashlar_device_free_bytes Free bytes, as the device reports them
	// # TYPE ashlar_device_free_bytes gauge
	// ashlar_device_free_bytes{device="sim:0"} 1063256064
	// # HELP ashlar_device_total_bytes Total bytes of the device
	// # TYPE ashlar_device_total_bytes gauge
	// ashlar_device_total_bytes{device="sim:0"} 1073741824
	// # HELP ashlar_scrape_success 1 if the source answered this scrape, 0 if it failed; with the labels of the source
	// # TYPE ashlar_scrape_success gauge
	// ashlar_scrape_success{device="sim:0",allocator="main",tenant="anna"} 1
	// ashlar_scrape_success{device="sim:0"} 1
}

// A registry is an HTTP handler for Prometheus's scrapes.
func ExampleRegistry_ServeHTTP() {
	dev, err := driver.Open("sim:total=1GiB")
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	a := direct.New(dev, direct.Config{})
	defer a.Close()
	var r metrics.Registry
	if _, err := r.Add(metrics.Labels{Device: "sim:0", Allocator: "main"}, a); err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", &r)
	server := httptest.NewServer(mux)
	defer server.Close()

	b, err := a.Alloc(dev.DefaultStream(), 10<<20)
	if err != nil {
		panic(err)
	}
	defer a.Free(b)
	answer, err := http.Get(server.URL + "/metrics")
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Status, answer.Header.Get("Content-Type"))
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "ashlar_memory_allocated_bytes") {
			fmt.Print(line)
		}
	}
	// Output:
	// 200 OK text/plain; version=0.0.4; charset=utf-8
	// ashlar_memory_allocated_bytes{device="sim:0",allocator="main",pool="small"} 0
	// ashlar_memory_allocated_bytes{device="sim:0",allocator="main",pool="large"} 10485760
}
