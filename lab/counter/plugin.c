/* Counts the instructions that an emulated machine runs, by block of code, between two marks
 * (mark.s). A plugin of QEMU's, for one emulated thread: no counter is locked.
 *
 *   -plugin counter.so,out=FILE
 *
 * For each window, which a mark of 1 begins and one of 2 ends, FILE gets a line `window`, and
 * a line for each block that ran: its address, the first bytes of its code, and how many
 * instructions it ran, in hexadecimal. Two programs may have other code at one address.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is used of the interface, version 1 (QEMU 4.2 and later); Debian packages no header. */
typedef uint64_t plugin_id;
struct tb;
struct insn;
extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct tb *));
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct tb *, int add, void *counter, uint64_t by);
extern void qemu_plugin_register_vcpu_insn_exec_cb(
    struct insn *, void (*)(unsigned processor, void *), int registers, void *);
extern size_t qemu_plugin_tb_n_insns(const struct tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct tb *);
extern struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
extern const void *qemu_plugin_insn_data(const struct insn *);
extern size_t qemu_plugin_insn_size(const struct insn *);
enum { ADD_U64 = 0, NO_REGISTERS = 0 };

int qemu_plugin_version = 1;

enum { CODE = 16, BUCKETS = 1 << 17 };

/* Never freed: translated code has its address. */
struct block {
    struct block *next;
    uint64_t at, count;
    uint8_t code[CODE];
    uint32_t bytes;
};

static struct block *blocks[BUCKETS];
static FILE *out;

/* A long no-op whose displacement is "GWM" and the mark's number. */
static const uint8_t MARK[] = {0x0f, 0x1f, 0x84, 0x00, 'G', 'W', 'M'};

static struct block *block_of(uint64_t at, const uint8_t *code, uint32_t bytes) {
    uint64_t hash = at * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t n = 0; n < bytes; n++) hash = (hash ^ code[n]) * UINT64_C(0x100000001b3);
    struct block **place = &blocks[hash >> 47];
    for (struct block *block = *place; block; block = block->next)
        if (block->at == at && block->bytes == bytes && !memcmp(block->code, code, bytes))
            return block;
    struct block *block = calloc(1, sizeof *block);
    if (!block) abort();
    block->next = *place;
    block->at = at;
    block->bytes = bytes;
    memcpy(block->code, code, bytes);
    return *place = block;
}

static void marked(unsigned processor, void *number) {
    (void)processor;
    int ends = (uintptr_t)number == 2;
    if (ends) fputs("window\n", out);
    for (size_t n = 0; n < BUCKETS; n++)
        for (struct block *block = blocks[n]; block; block = block->next) {
            if (ends && block->count) {
                fprintf(out, "%llx ", (unsigned long long)block->at);
                for (uint32_t m = 0; m < block->bytes; m++) fprintf(out, "%02x", block->code[m]);
                fprintf(out, " %llx\n", (unsigned long long)block->count);
            }
            block->count = 0;
        }
    fflush(out);
}

static void translated(plugin_id id, struct tb *tb) {
    (void)id;
    uint8_t code[CODE];
    uint32_t bytes = 0;
    size_t count = qemu_plugin_tb_n_insns(tb);
    for (size_t n = 0; n < count; n++) {
        struct insn *insn = qemu_plugin_tb_get_insn(tb, n);
        const uint8_t *data = qemu_plugin_insn_data(insn);
        size_t size = qemu_plugin_insn_size(insn);
        if (size == sizeof MARK + 1 && !memcmp(data, MARK, sizeof MARK))
            qemu_plugin_register_vcpu_insn_exec_cb(
                insn, marked, NO_REGISTERS, (void *)(uintptr_t)data[sizeof MARK]);
        for (size_t m = 0; m < size && bytes < CODE; m++) code[bytes++] = data[m];
    }
    struct block *block = block_of(qemu_plugin_tb_vaddr(tb), code, bytes);
    qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD_U64, &block->count, count);
}

int qemu_plugin_install(plugin_id id, const void *machine, int argc, char **argv) {
    (void)machine;
    if (argc != 1 || strncmp(argv[0], "out=", 4) || !(out = fopen(argv[0] + 4, "w"))) {
        fputs("counter: expected out=FILE, which can be written\n", stderr);
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
