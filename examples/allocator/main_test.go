package main

func Example() {
	main()
	// Output:
	// 300 MiB at 0x8f0000000000, 300 MiB reserved
	// 200 MiB at 0x8f0000000000, 300 MiB reserved
	// 500 MiB at 0x8f0000000000, 500 MiB reserved
	// mem: out of memory. Tried to allocate 700.00 MiB. GPU 0 has a total capacity of 1024.00 MiB of which 1024.00 MiB is free. 600.00 MiB allowed; 0 bytes is allocated, and 0 bytes is reserved but unallocated.
	//   the request: 700.00 MiB (734003200 bytes) on stream 0, large pool; largest free block there: 0 bytes
	//   your own limit of 600.00 MiB was reached, the GPU had 1024.00 MiB free; the request needed 700.00 MiB in all
}
