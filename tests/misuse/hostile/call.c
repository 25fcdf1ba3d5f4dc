/* Makes system calls that no shell makes, and says how each went.
 *
 *   call NAME [ARGUMENT...] [, NAME [ARGUMENT...]]...
 *
 * An ARGUMENT is a number, the address of a text (=TEXT), of bytes in hex
 * (x0a0b...), of so many zeroed bytes (*4096), or the result of the call with
 * that index (@0). For each call a line is printed: its name, and what it
 * returned or `refused` with the number of the error.
 *
 *   call deep COUNT
 *
 * makes so many directories, each in the one before. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CALL(name) {#name, SYS_##name}
static const struct {
    const char *name;
    long number;
} calls[] = {
    CALL(accept4),        CALL(acct),          CALL(add_key),       CALL(bind),
    CALL(bpf),            CALL(chmod),         CALL(chroot),        CALL(clock_settime),
    CALL(clone3),         CALL(close),         CALL(delete_module), CALL(fchmod),
    CALL(fchown),         CALL(finit_module),  CALL(fsopen),        CALL(init_module),
    CALL(io_uring_setup), CALL(ioctl),         CALL(kcmp),          CALL(kexec_load),
    CALL(keyctl),         CALL(mkdirat),       CALL(mknodat),       CALL(mount),
    CALL(mount_setattr),  CALL(move_mount),    CALL(name_to_handle_at), CALL(open_by_handle_at),
    CALL(open_tree),      CALL(openat),        CALL(perf_event_open), CALL(pivot_root),
    CALL(prctl),          CALL(process_vm_readv), CALL(ptrace),     CALL(quotactl),
    CALL(reboot),         CALL(request_key),   CALL(sendto),        CALL(setdomainname),
    CALL(sethostname),    CALL(setns),         CALL(setsockopt),    CALL(settimeofday),
    CALL(socket),         CALL(swapon),        CALL(syslog),        CALL(umount2),
    CALL(unshare),        CALL(userfaultfd),   CALL(vhangup),
#ifdef SYS_iopl
    CALL(iopl),           CALL(ioperm),
#endif
};

static long results[64];

static unsigned char *bytes_of(const char *hex) {
    size_t length = strlen(hex) / 2;
    unsigned char *bytes = calloc(length + 1, 1);
    for (size_t at = 0; bytes && at < length; at++) {
        char digits[3] = {hex[2 * at], hex[2 * at + 1], 0};
        bytes[at] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return bytes;
}

static long value_of(const char *word) {
    switch (word[0]) {
    case '=': return (long)(word + 1);
    case 'x': return (long)bytes_of(word + 1);
    case '*': return (long)calloc(strtoul(word + 1, NULL, 0), 1);
    case '@': return results[strtoul(word + 1, NULL, 0) % 64];
    default: return strtol(word, NULL, 0);
    }
}

static long number_of(const char *name) {
    for (size_t at = 0; at < sizeof calls / sizeof *calls; at++)
        if (!strcmp(calls[at].name, name)) return calls[at].number;
    fprintf(stderr, "call: %s is not known here\n", name);
    exit(2);
}

static int deep(long levels) {
    for (long level = 0; level < levels; level++)
        if (mkdir("d", 0755) || chdir("d")) return perror("deep"), 1;
    puts("deep");
    return 0;
}

int main(int count, char **words) {
    if (count == 3 && !strcmp(words[1], "deep")) return deep(strtol(words[2], NULL, 0));
    int at = 1, done = 0;
    while (at < count) {
        const char *name = words[at++];
        long values[6] = {0};
        for (int argument = 0; at < count && strcmp(words[at], ","); at++)
            if (argument < 6) values[argument++] = value_of(words[at]);
        at++;
        errno = 0;
        long result = syscall(number_of(name), values[0], values[1], values[2], values[3], values[4], values[5]);
        results[done++ % 64] = result;
        if (result == -1 && errno) printf("%s refused %d\n", name, errno);
        else printf("%s = %ld\n", name, result);
        fflush(stdout);
    }
    return 0;
}
