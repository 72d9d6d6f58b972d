/* For User-Mode Linux on processors whose registers are more than it knows of.
 *
 * It hands the kernel the first 2,696 bytes of a process's extended registers (all up to AVX-512). Where there are more
 * (AMX), Linux takes all of them or none, and the guest dies of "ptrace set fp regs failed, errno = 14" before its init
 * runs. Its processes cannot have used the others: zeros are what is in them.
 *
 * Loaded with LD_PRELOAD, in front of the C library's ptrace. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long (*ptrace_t)(enum __ptrace_request, pid_t, void *, void *);

static char all[1 << 16];

long ptrace(enum __ptrace_request request, ...)
{
    static ptrace_t next;
    static size_t whole; /* of all registers; 0: what is handed over is taken */
    va_list arguments;
    va_start(arguments, request);
    pid_t pid = va_arg(arguments, pid_t);
    void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
    va_end(arguments);
    if (!next)
        next = (ptrace_t)dlsym(RTLD_NEXT, "ptrace");
    struct iovec *given = data;
    int extended = request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE;
    if (extended && !whole) {
        long done = next(request, pid, address, data);
        struct iovec read = {all, sizeof all};
        if (done == 0 || errno != EFAULT || next(PTRACE_GETREGSET, pid, address, &read) || read.iov_len <= given->iov_len)
            return done;
        memset(all, 0, sizeof all);
        whole = read.iov_len;
    }
    if (!extended || given->iov_len >= whole)
        return next(request, pid, address, data);
    memcpy(all, given->iov_base, given->iov_len);
    struct iovec padded = {all, whole};
    return next(request, pid, address, &padded);
}
