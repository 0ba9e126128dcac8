// The part of the CUDA driver's interface that measuring uses, on host memory: libcuda.so.1 for a machine without a GPU.
// Streams run at once; while one is captured, fills and copies are put down and run when the graph is launched.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int R;
typedef unsigned long long P;
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_FOUND = 500 };
#define API __attribute__((visibility("default"))) R

typedef struct {
  P to, from;
  size_t bytes;
  unsigned char value;
} Step;
typedef struct {
  int count;
  Step steps[64];
} Graph;

static Graph* capturing;
static size_t taken;

static R run(Step s) {
  if (s.from) {
    memcpy((void*)s.to, (void*)s.from, s.bytes);
  } else {
    memset((void*)s.to, s.value, s.bytes);
  }
  return OK;
}
static R enqueue(Step s) {
  if (!capturing) return run(s);
  capturing->steps[capturing->count++] = s;
  return OK;
}

API cuInit(unsigned flags) { return flags ? INVALID : OK; }
API cuDriverGetVersion(int* version) { return *version = 13000, OK; }
API cuDeviceGetCount(int* count) { return *count = 1, OK; }
API cuDeviceGet(int* device, int ordinal) { return *device = ordinal, ordinal ? 101 : OK; }
API cuDeviceGetName(char* name, int length, int device) { return strncpy(name, "Host GPU", length), OK; }
API cuDeviceGetPCIBusId(char* id, int length, int device) { return strncpy(id, "0000:00:00.0", length), OK; }
API cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 8 : attribute == 76 ? 6 : 1000;
  return OK;
}
API cuDevicePrimaryCtxRetain(void** context, int device) { return *context = (void*)16, OK; }
API cuDevicePrimaryCtxRelease_v2(int device) { return OK; }
API cuCtxSetCurrent(void* context) { return OK; }
API cuCtxSynchronize(void) { return OK; }
API cuMemAlloc_v2(P* pointer, size_t bytes) {
  if (bytes >> 40) return NO_MEMORY;
  void* got = aligned_alloc(256, (bytes + 255) / 256 * 256);
  *pointer = (P)got;
  if (got) taken += malloc_usable_size(got);
  return got ? OK : NO_MEMORY;
}
API cuMemFree_v2(P pointer) {
  taken -= malloc_usable_size((void*)pointer);
  return free((void*)pointer), OK;
}
API cuMemGetInfo_v2(size_t* available, size_t* total) {
  return *total = 1ull << 34, *available = *total - taken, OK;
}
API cuMemcpyHtoD_v2(P to, void const* from, size_t bytes) { return memcpy((void*)to, from, bytes), OK; }
API cuMemcpyDtoH_v2(void* to, P from, size_t bytes) { return memcpy(to, (void*)from, bytes), OK; }
API cuMemcpyDtoDAsync_v2(P to, P from, size_t bytes, void* stream) { return enqueue((Step){to, from, bytes, 0}); }
API cuMemsetD8Async(P to, unsigned char value, size_t bytes, void* stream) {
  return enqueue((Step){to, 0, bytes, value});
}
API cuStreamCreate(void** stream, unsigned flags) { return *stream = (void*)32, OK; }
API cuEventCreate(void** event, unsigned flags) { return *event = calloc(1, sizeof(double)), OK; }
API cuEventRecord(void* event, void* stream) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *(double*)event = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
  return OK;
}
API cuEventSynchronize(void* event) { return OK; }
API cuEventElapsedTime(float* ms, void* start, void* stop) {
  return *ms = (float)(*(double*)stop - *(double*)start), OK;
}
API cuEventElapsedTime_v2(float* ms, void* start, void* stop) { return cuEventElapsedTime(ms, start, stop); }
API cuStreamBeginCapture_v2(void* stream, int mode) { return capturing = calloc(1, sizeof(Graph)), mode == 1 ? OK : INVALID; }
API cuStreamEndCapture(void* stream, void** graph) { return *graph = capturing, capturing = NULL, OK; }
API cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
  *executable = memcpy(malloc(sizeof(Graph)), graph, sizeof(Graph));
  return OK;
}
API cuGraphDestroy(void* graph) { return free(graph), OK; }
API cuGraphExecDestroy(void* executable) { return free(executable), OK; }
API cuGraphLaunch(void* executable, void* stream) {
  Graph* graph = executable;
  for (int i = 0; i < graph->count; ++i) enqueue(graph->steps[i]);
  return OK;
}
API cuGetErrorName(R error, char const** name) {
  return *name = error == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN", OK;
}

// cuda-bindings asks for every function of the driver by name and version; those that are not here stay unknown.
API cuGetProcAddress_v2(char const* name, void** function, int version, uint64_t flags, int* status) {
  char versioned[128];
  *function = NULL;
  if (strlen(name) < 100) {
    strcat(strcpy(versioned, name), "_v2");
    *function = dlsym(RTLD_DEFAULT, versioned);
    if (!*function) *function = dlsym(RTLD_DEFAULT, name);
    if (!*function && !strcmp(name, "cuGraphInstantiate")) *function = (void*)cuGraphInstantiateWithFlags;
  }
  if (status) *status = *function ? 0 : 1;
  return *function ? OK : NOT_FOUND;
}
API cuGetProcAddress(char const* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, NULL);
}
