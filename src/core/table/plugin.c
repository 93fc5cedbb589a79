/* Operators from shared objects. The file is read and checked before it is opened: opening one runs its code, and one
 * that was built for other structs would be read as nonsense. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/host/memory.h"
#include "table.h"

#define SYMBOL "tenon_plugin"

#if defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#elif defined(__x86_64__)
enum { MACHINE = EM_X86_64 };
#else
enum { MACHINE = EM_NONE };
#endif

typedef struct file {
    const char *path;
    const unsigned char *bytes;
    size_t size;
} file;

/* `size` bytes at `offset`, or NULL where the file ends before. */
static const void *at(const file *f, uint64_t offset, uint64_t size) {
    return offset <= f->size && size <= f->size - offset ? f->bytes + offset : NULL;
}

static tn_status refuse(const file *f, const char *why) {
    return tn_fail(TN_BAD_PLUGIN, "%s: %s", f->path, why);
}

static tn_status check_header(const file *f, Elf64_Ehdr *header) {
    const void *bytes = at(f, 0, sizeof *header);
    if (!bytes || memcmp(bytes, ELFMAG, SELFMAG) != 0) return refuse(f, "not a shared object (no ELF header)");
    memcpy(header, bytes, sizeof *header);
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
        return refuse(f, "not a 64-bit little-endian shared object");
    }
    if (header->e_type != ET_DYN) return refuse(f, "not a shared object; build it with -shared -fPIC");
    if (MACHINE != EM_NONE && header->e_machine != MACHINE) {
        return tn_fail(TN_BAD_PLUGIN, "%s: built for another machine (ELF machine %d, this one is %d)", f->path,
                       header->e_machine, MACHINE);
    }
    return TN_OK;
}

static bool section(const file *f, const Elf64_Ehdr *header, uint32_t i, Elf64_Shdr *out) {
    if (i >= header->e_shnum || header->e_shentsize < sizeof *out) return false;
    const void *bytes = at(f, header->e_shoff + (uint64_t)i * header->e_shentsize, sizeof *out);
    if (bytes) memcpy(out, bytes, sizeof *out);
    return bytes != NULL;
}

/* Looks through the dynamic symbols of one section. */
static bool find_in(const file *f, const Elf64_Ehdr *header, const Elf64_Shdr *symbols, Elf64_Sym *found) {
    Elf64_Shdr names;
    if (!section(f, header, symbols->sh_link, &names)) return false;
    for (uint64_t i = 0; i < symbols->sh_size / sizeof *found; i++) {
        const void *bytes = at(f, symbols->sh_offset + i * sizeof *found, sizeof *found);
        if (!bytes) return false;
        memcpy(found, bytes, sizeof *found);
        const void *name = found->st_name < names.sh_size ? at(f, names.sh_offset + found->st_name, sizeof SYMBOL)
                                                          : NULL;
        if (name && found->st_shndx != SHN_UNDEF && memcmp(name, SYMBOL, sizeof SYMBOL) == 0) return true;
    }
    return false;
}

static bool find_symbol(const file *f, const Elf64_Ehdr *header, Elf64_Sym *found) {
    for (uint32_t i = 0; i < header->e_shnum; i++) {
        Elf64_Shdr s;
        if (section(f, header, i, &s) && s.sh_type == SHT_DYNSYM && find_in(f, header, &s, found)) return true;
    }
    return false;
}

/* The bytes of the file that will be at `address` once it is loaded. */
static const void *at_address(const file *f, const Elf64_Ehdr *header, uint64_t address, uint64_t size) {
    for (uint32_t i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr p;
        const void *bytes = at(f, header->e_phoff + (uint64_t)i * header->e_phentsize, sizeof p);
        if (!bytes) return NULL;
        memcpy(&p, bytes, sizeof p);
        if (p.p_type != PT_LOAD || address < p.p_vaddr || address - p.p_vaddr >= p.p_filesz) continue;
        return at(f, p.p_offset + (address - p.p_vaddr), size);
    }
    return NULL;
}

/* Everything that the headers speak of lies inside the file: opening one that was cut short can kill the process. */
static bool is_whole(const file *f, const Elf64_Ehdr *header) {
    if (!at(f, header->e_shoff, (uint64_t)header->e_shnum * header->e_shentsize)) return false;
    for (uint32_t i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr p;
        const void *bytes = at(f, header->e_phoff + (uint64_t)i * header->e_phentsize, sizeof p);
        if (!bytes) return false;
        memcpy(&p, bytes, sizeof p);
        if (p.p_type == PT_LOAD && !at(f, p.p_offset, p.p_filesz)) return false;
    }
    return true;
}

static tn_status check_plugin(const file *f) {
    Elf64_Ehdr header;
    Elf64_Sym symbol;
    TN_TRY(check_header(f, &header));
    if (!is_whole(f, &header)) return refuse(f, "the file is cut short");
    if (!find_symbol(f, &header, &symbol)) {
        return refuse(f,
                      "exports no '" SYMBOL "'; a plugin ends with `const tn_plugin tenon_plugin = TN_PLUGIN(ops);`");
    }
    uint32_t head[4]; /* abi, op_size, kernel_size, count: plain numbers, the same in the file and in memory */
    const void *bytes = at_address(f, &header, symbol.st_value, sizeof head);
    if (!bytes) return refuse(f, "'" SYMBOL "' has no contents in the file");
    memcpy(head, bytes, sizeof head);
    if (head[0] != TN_ABI) {
        return tn_fail(TN_BAD_PLUGIN,
                       "%s: built for ABI %u of Tenon, this is ABI %d; build it again with this tenon/op.h", f->path,
                       head[0], TN_ABI);
    }
    if (head[1] != sizeof(tn_op) || head[2] != sizeof(tn_kernel)) {
        return tn_fail(TN_BAD_PLUGIN, "%s: its tn_op and tn_kernel have %u and %u bytes, here they have %zu and %zu",
                       f->path, head[1], head[2], sizeof(tn_op), sizeof(tn_kernel));
    }
    return head[3] ? TN_OK : refuse(f, "holds no operators");
}

static tn_status check_file(const char *path, struct stat *info) {
    file f = {.path = path};
    tn_status status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return tn_fail(TN_SYSTEM, "%s: %s", path, strerror(errno));
    if (fstat(fd, info) != 0 || !S_ISREG(info->st_mode) || info->st_size == 0) {
        status = refuse(&f, "not a file with contents");
    } else {
        f.size = (size_t)info->st_size;
        void *map = mmap(NULL, f.size, PROT_READ, MAP_PRIVATE, fd, 0);
        f.bytes = map;
        status = map == MAP_FAILED ? tn_fail(TN_SYSTEM, "%s: %s", path, strerror(errno)) : check_plugin(&f);
        if (map != MAP_FAILED) munmap(map, f.size);
    }
    close(fd);
    return status;
}

static const tni_kernel_texts *texts;

void tni_set_kernel_texts(const tni_kernel_texts *with) {
    texts = with;
}

/* A file of kernels as text: read whole. *is_text: it was one. */
static tn_status load_text(const char *path, bool *is_text) {
    FILE *opened = fopen(path, "re");
    struct stat info;
    char first[64];
    tn_status status = TN_OK;
    if (!opened) return tn_fail(TN_SYSTEM, "%s: %s", path, strerror(errno));
    const size_t n = fread(first, 1, sizeof first, opened);
    *is_text = texts && texts->is_text(first, n) && fstat(fileno(opened), &info) == 0;
    if (*is_text) {
        char *text = tni_malloc((size_t)info.st_size + 1);
        rewind(opened);
        if (text) text[fread(text, 1, (size_t)info.st_size, opened)] = 0;
        status = text ? texts->load(path, text) : TN_NO_MEMORY;
        tni_free(text);
    }
    fclose(opened);
    return status;
}

enum { MOST_PLUGINS = 256 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static struct {
    struct stat info; /* of the file when it was loaded */
    char *path;       /* with no link in it */
    void *handle;
} loaded[MOST_PLUGINS];
static int count;

static bool is_same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool is_unchanged(const struct stat *a, const struct stat *b) {
    return is_same(a, b) && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Compilers write a new file in place of the old one, copying writes over it: the linker would give the old operators
 * for the first, and has mapped the second, whose code is another now. */
static tn_status find_loaded(const char *path, const char *whole, const struct stat *info, bool *found) {
    *found = false;
    for (int i = 0; i < count; i++) {
        if (!is_same(&loaded[i].info, info) && strcmp(loaded[i].path, whole) != 0) continue;
        *found = true;
        if (is_unchanged(&loaded[i].info, info)) return TN_OK;
        return tn_fail(TN_BAD_PLUGIN,
                       "%s: the file has changed since this process loaded it, and loaded operators stay as they are; "
                       "start a new process to use it",
                       path);
    }
    return TN_OK;
}

static tn_status open_plugin(const char *path, void **opened) {
    /* A name without a slash would be looked up in the library path. */
    char local[4096];
    size_t length = strlen(path);
    if (length + 3 > sizeof local) return tn_fail(TN_BAD_PLUGIN, "the path of the plugin is too long");
    bool bare = strchr(path, '/') == NULL;
    memcpy(local, "./", 2);
    memcpy(local + (bare ? 2 : 0), path, length + 1);
    void *handle = dlopen(local, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return tn_fail(TN_BAD_PLUGIN, "cannot be opened: %s", dlerror());
    const tn_plugin *plugin = dlsym(handle, SYMBOL);
    const void *built = dlsym(handle, "tenon_built");
    tn_status status = plugin ? tni_table_add_plugin(plugin->ops, (int)plugin->count)
                              : tn_fail(TN_BAD_PLUGIN, "%s: '" SYMBOL "' is gone", path);
    *opened = handle;
    if (status == TN_OK && built && texts) texts->add_built(built);
    if (status != TN_OK) dlclose(handle); /* else it stays: the table points into it */
    return status;
}

static tn_status add_plugin(const char *path, const char *whole, const struct stat *info) {
    char *kept = tni_malloc(strlen(whole) + 1);
    if (!kept) return TN_NO_MEMORY;
    tn_status status = open_plugin(path, &loaded[count].handle);
    if (status != TN_OK) {
        tni_free(kept);
        return status;
    }
    loaded[count].path = strcpy(kept, whole);
    loaded[count++].info = *info;
    return TN_OK;
}

tn_status tn_load(const char *path) {
    struct stat info;
    char whole[PATH_MAX];
    if (!path || !*path) return tn_fail(TN_BAD_VALUE, "tn_load: the path is empty");
    bool is_text;
    TN_TRY(load_text(path, &is_text));
    if (is_text) return TN_OK;
    TN_TRY(check_file(path, &info));
    if (!realpath(path, whole)) return tn_fail(TN_SYSTEM, "%s: %s", path, strerror(errno));
    pthread_mutex_lock(&lock);
    bool known;
    tn_status status = find_loaded(path, whole, &info, &known);
    if (!known && count == MOST_PLUGINS) {
        status = tn_fail(TN_BAD_PLUGIN, "%s: %d plugins are loaded already", path, MOST_PLUGINS);
    } else if (!known) {
        status = add_plugin(path, whole, &info);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void tni_plugins_close(void) {
    pthread_mutex_lock(&lock);
    while (count > 0) {
        dlclose(loaded[--count].handle);
        tni_free(loaded[count].path);
    }
    pthread_mutex_unlock(&lock);
}
