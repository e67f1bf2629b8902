//go:build gpu

package main

import "testing"

func TestGPUAgreesWithPyTorch(t *testing.T) { agrees(t, "cuda:0") }

func TestGPULimit(t *testing.T) { meetsLimit(t, "cuda:0") }
