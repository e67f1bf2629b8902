//go:build !linux

package caching

func preferLargePages([]block) {}
