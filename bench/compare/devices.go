package main

import (
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
)
