/* Prints where C has the fields of DLPack's structures. The fields and their types are those of dlpack.h, version 1.1
   (https://github.com/dmlc/dlpack/blob/v1.1/include/dlpack/dlpack.h). layout.txt is the output of gcc 12 on x86-64:

       gcc -o /tmp/layout layout.c && /tmp/layout > layout.txt */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct { uint32_t major, minor; } Version;
typedef enum { CPU = 1 } DeviceType;
typedef struct { DeviceType device_type; int32_t device_id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } DataType;
typedef struct {
  void *data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;
typedef struct Legacy { Tensor dl_tensor; void *manager_ctx; void (*deleter)(struct Legacy *); } Legacy;
typedef struct Managed {
  Version version;
  void *manager_ctx;
  void (*deleter)(struct Managed *);
  uint64_t flags;
  Tensor dl_tensor;
} Managed;

#define FIELD(T, F) printf("%s.%s %zu\n", #T, #F, offsetof(T, F))
#define SIZE(T) printf("%s %zu\n", #T, sizeof(T))

int main(void) {
  SIZE(Version); FIELD(Version, major); FIELD(Version, minor);
  SIZE(Device); FIELD(Device, device_type); FIELD(Device, device_id);
  SIZE(DataType); FIELD(DataType, code); FIELD(DataType, bits); FIELD(DataType, lanes);
  SIZE(Tensor); FIELD(Tensor, data); FIELD(Tensor, device); FIELD(Tensor, ndim); FIELD(Tensor, dtype);
  FIELD(Tensor, shape); FIELD(Tensor, strides); FIELD(Tensor, byte_offset);
  SIZE(Legacy); FIELD(Legacy, dl_tensor); FIELD(Legacy, manager_ctx); FIELD(Legacy, deleter);
  SIZE(Managed); FIELD(Managed, version); FIELD(Managed, manager_ctx); FIELD(Managed, deleter); FIELD(Managed, flags);
  FIELD(Managed, dl_tensor);
  return 0;
}
