//go:build 386 || arm || mips || mipsle

package driver

// Sizes and addresses of device memory take more than 32 bits. On a platform of 32 bits this line is the compiler's
// error.
const _ int = "Ashlar needs a 64-bit platform, such as GOARCH=amd64 or arm64"
