module github.com/ashlar-go/ashlar

go 1.26
