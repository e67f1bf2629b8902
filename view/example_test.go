package view_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/view"
)

func Example() {
	trace, err := snapshot.ReadFile("../testdata/traces/unet.stacks.pickle.zst")
	if err != nil {
		panic(err)
	}
	s := view.New(view.Options{})
	if err := s.Open("unet", "unet.stacks.pickle.zst").Set(trace); err != nil {
		panic(err)
	}

	// A program listens on 127.0.0.1 and prints s.URL(listener.Addr()).
	l := httptest.NewUnstartedServer(nil)
	l.Config.Handler = s.Handler(l.Listener.Addr())
	l.Start()
	defer l.Close()

	for _, url := range []string{s.URL(l.Listener.Addr()), l.URL} {
		answer, err := http.Get(url)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		fmt.Println(answer.Status)
	}
	// Output:
	// 200 OK
	// 403 Forbidden
}
