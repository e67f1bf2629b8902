module github.com/ashlar-go/ashlar/view/browsertest

go 1.26.0

require (
	github.com/ashlar-go/ashlar v0.0.0
	github.com/chromedp/cdproto v0.159.0
	github.com/chromedp/chromedp v0.22.1
)

require (
	github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/ulikunitz/xz v0.5.17 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/ashlar-go/ashlar => ../..
