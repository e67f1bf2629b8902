package live_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/trace"
	"github.com/ashlar-go/ashlar/view/live"
)

func Example() {
	dev := sim.New(sim.Options{})
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		panic(err)
	}
	recorder := trace.NewRecorder(trace.RecorderOptions{Max: 1_000_000, Context: trace.ContextAll})
	recorded := recorder.Attach(a)
	defer live.Register("example", recorded, snapshot.Live{Recorder: recorder})()

	// A program calls http.ListenAndServe("localhost:6060", nil), and a user ashlar view --attach localhost:6060.
	server := httptest.NewServer(http.DefaultServeMux)
	defer server.Close()
	answer, err := http.Get(server.URL + "/debug/ashlar/")
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	list, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s", list)
	// Output: [{"name":"example","version":"0 0 0 0"}]
}
