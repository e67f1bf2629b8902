// Package ashlar is the root of Ashlar, GPU memory management for Go. It holds no code; these packages do:
//
//   - [github.com/ashlar-go/ashlar/engine]: an engine that owns devices, and sessions that work on them. Start here.
//   - [github.com/ashlar-go/ashlar/tensor] and [github.com/ashlar-go/ashlar/compute]: tensors and operations on them.
//     [github.com/ashlar-go/ashlar/remat] runs those that do not fit into memory.
//   - [github.com/ashlar-go/ashlar/mem]: the contract of allocators. Its subdirectories are the allocators, and
//     [github.com/ashlar-go/ashlar/mem/layer] what wraps them: limits, leak tracking, guards.
//   - [github.com/ashlar-go/ashlar/driver]: the contract of devices, with CUDA, the host and a simulated device below it.
//   - [github.com/ashlar-go/ashlar/replay], [github.com/ashlar-go/ashlar/snapshot] and
//     [github.com/ashlar-go/ashlar/trace]: PyTorch's memory snapshots, read, replayed and explained. The command
//     cmd/ashlar does so from the shell.
//
// Ashlar needs a 64-bit platform, such as GOARCH=amd64 or arm64; on others the compiler says so.
package ashlar
