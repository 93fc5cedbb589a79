/* The host's compiler in use: text to shared object to functions (compile_c.h says when). */
#include "compile_c.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu/isa.h"
#include "fuse/cache/cache.h"

enum {
    GENERATOR = 3,     /* raised with every change of flags or of what surrounds the text */
    MOST_SECONDS = 60, /* that the compiler may take */
    MOST_WORDS = 48,   /* of a command */
    MOST_CALLS = 1000, /* that ask whether the compiler is free */
};

static const char *const flags[] = {
    "-std=gnu11", "-O3", "-w", "-fPIC", "-fwrapv", "-ffp-contract=fast", "-fno-math-errno", "-s", "-fno-trapping-math"};
/* Nothing to look up in other libraries, and as few pages as can be: it is loaded sooner. */
static const char *const library_flags[] = {"-shared", "-nostartfiles", "-Wl,-z,noseparate-code", NULL};
/* As in CMakeLists.txt. */
static const struct {
    const char *isa, *flags[8];
} machines[] = {
    {"avx2", {"-mavx2", "-mfma", "-mf16c"}},
    {"avx512", {"-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c", "-mprefer-vector-width=512"}},
};
static const char bf16_flag[] = "-march=armv8.2-a+bf16"; /* where the machine has it, and the compiler knows it */

/* Programs with the same text share one. The last of them to go takes it along. */
struct tni_c_code {
    int32_t users; /* programs, and the thread that compiles it */
    tni_cache_key key;
    char *source;
    int32_t n_loops;
    bool looked; /* into the cache on disk */
    bool tried;  /* to compile it */
    _Atomic int32_t calls;
    _Atomic(tni_c_loop *) loops;
    void *library; /* that they are in */
    struct tni_c_code *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows, `users`, `looked` and `tried` */
static struct tni_c_code *codes;
static _Atomic bool busy;   /* a thread is compiling: one at a time */
static _Atomic bool ending; /* the process is: nothing is begun any more */

/* Changed only by whoever compiles. */
enum { UNKNOWN, WORKS, BROKEN };
static _Atomic int compiler;
static bool lacks_bf16;  /* the flag: it does not know it */
static char folder[256]; /* of the compiler's files */
static _Atomic bool has_folder;
static _Atomic pid_t child; /* that is running; 0: none */

/* ---- a command --------------------------------------------------------------------------------------------------- */

static bool path_in_folder(char *path, size_t size, const char *name) {
    int n = snprintf(path, size, "%s/%s", folder, name);
    return n > 0 && (size_t)n < size;
}

static bool write_text(const char *name, const char *text) {
    char path[512];
    if (!path_in_folder(path, sizeof path, name)) return false;
    FILE *file = fopen(path, "we");
    if (!file) return false;
    bool done = fputs(text, file) >= 0;
    return fclose(file) == 0 && done;
}

/* The caller frees it with tni_free. */
static char *read_whole(const char *name, size_t *bytes) {
    char path[512], *data = NULL;
    struct stat about;
    if (!path_in_folder(path, sizeof path, name)) return NULL;
    FILE *file = fopen(path, "re");
    if (!file) return NULL;
    if (fstat(fileno(file), &about) == 0 && about.st_size > 0) data = tni_malloc((size_t)about.st_size + 1);
    if (data) {
        *bytes = fread(data, 1, (size_t)about.st_size, file);
        data[*bytes] = 0;
    }
    fclose(file);
    return data;
}

/* Somebody else may wait for the child, or the host may ask for none to be left: what it did is seen by its files. */
static void wait_for_child(pid_t pid) {
    const struct timespec pause = {0, 2000000};
    for (int i = 0; i < MOST_SECONDS * 500; i++) {
        int status;
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) return;
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* This process's, but files of the compiler's own go into the folder too. The caller frees it. */
static char **environment(char *temporary, size_t size) {
    extern char **environ;
    int32_t n = 0, kept = 0;
    while (environ[n]) n++;
    char **made = tni_malloc((size_t)(n + 2) * sizeof *made);
    if (!made) return NULL;
    for (int32_t i = 0; i < n; i++) {
        if (strncmp(environ[i], "TMPDIR=", 7) != 0) made[kept++] = environ[i];
    }
    snprintf(temporary, size, "TMPDIR=%s", folder);
    made[kept++] = temporary;
    made[kept] = NULL;
    return made;
}

/* What it says on its output goes into the file `said`. */
static void run(char *const *words) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none;
    char path[512], temporary[512];
    pid_t pid;
    if (atomic_load(&ending) || !path_in_folder(path, sizeof path, "said")) return;
    sigemptyset(&none);
    char **variables = environment(temporary, sizeof temporary);
    if (!variables || posix_spawn_file_actions_init(&files) != 0) {
        tni_free(variables);
        return;
    }
    if (posix_spawnattr_init(&attributes) == 0) {
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&files, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
        if (posix_spawnp(&pid, words[0], &files, &attributes, words, variables) == 0) {
            atomic_store(&child, pid);
            wait_for_child(pid);
            atomic_store(&child, 0);
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    tni_free(variables);
}

/* ---- the compiler ------------------------------------------------------------------------------------------------ */

const char *tni_c_compiler(void) {
    static const char *const names[] = {"TENON_CC", "CC"};
    for (int i = 0; i < 2; i++) {
        const char *name = getenv(names[i]);
        if (name && *name) return name;
    }
    return "cc";
}

/* `cc -O3 … -I folder from -o to`; the name may be several words. */
static void compile(const char *from, const char *to, bool shared) {
    char name[512], source[512], target[512], include[512];
    char *words[MOST_WORDS], *rest = NULL;
    int n = 0, written = snprintf(name, sizeof name, "%s", tni_c_compiler());
    bool fits = written > 0 && (size_t)written < sizeof name && path_in_folder(source, sizeof source, from) &&
                path_in_folder(target, sizeof target, to);
    if (!fits) return;
    snprintf(include, sizeof include, "-I%s", folder);
    for (char *word = strtok_r(name, " ", &rest); word && n < 16; word = strtok_r(NULL, " ", &rest)) words[n++] = word;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) words[n++] = (char *)(uintptr_t)flags[i];
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        if (strcmp(machines[i].isa, tni_loops_isa()) != 0) continue;
        for (int k = 0; machines[i].flags[k]; k++) words[n++] = (char *)(uintptr_t)machines[i].flags[k];
    }
    if (tni_cpu_bf16() && !lacks_bf16) words[n++] = (char *)(uintptr_t)bf16_flag;
    for (int k = 0; shared && library_flags[k]; k++) words[n++] = (char *)(uintptr_t)library_flags[k];
    words[n++] = include;
    words[n++] = source;
    words[n++] = "-o";
    words[n++] = target;
    words[n] = NULL;
    if (words[0]) run(words);
}

/* What the headers take from the library's own. */
static const char op_h[] = "#ifndef TENON_OP_H\n#define TENON_OP_H\n#include <stdbool.h>\n#include <stdint.h>\n"
                           "typedef enum tn_type { TN_F16, TN_BF16, TN_F32, TN_F64 } tn_type;\n#endif\n";

static void empty_folder(const char *path) {
    DIR *all = opendir(path);
    for (const struct dirent *one; all && (one = readdir(all));) unlinkat(dirfd(all), one->d_name, 0);
    if (all) closedir(all);
}

static void remove_folder(void) {
    char path[512];
    if (path_in_folder(path, sizeof path, "tenon")) {
        empty_folder(path);
        rmdir(path);
    }
    empty_folder(folder);
    rmdir(folder);
    atomic_store(&has_folder, false);
}

static bool make_folder(void) {
    const char *where = getenv("TMPDIR");
    char path[512];
    int n = snprintf(folder, sizeof folder, "%s/tenon-XXXXXX", where && *where == '/' ? where : "/tmp");
    if (n < 0 || (size_t)n >= sizeof folder || !mkdtemp(folder)) return false;
    atomic_store(&has_folder, true);
    bool done = path_in_folder(path, sizeof path, "tenon") && mkdir(path, 0700) == 0 && write_text("tenon/op.h", op_h);
    for (const tni_c_file *f = tni_c_files; f->name && done; f++) done = write_text(f->name, f->text);
    if (!done) remove_folder();
    return done;
}

static void end_compiling(int most_waits) {
    const struct timespec pause = {0, 1000000};
    atomic_store(&ending, true);
    for (int i = 0; i < most_waits && atomic_load(&busy); i++) {
        pid_t pid = atomic_load(&child);
        if (pid > 0) kill(pid, SIGKILL);
        nanosleep(&pause, NULL);
    }
}

__attribute__((destructor)) void tni_c_end(void) {
    if (atomic_load(&has_folder)) end_compiling(200);
    atomic_store(&ending, true);
}

static bool has_codes(void) {
    pthread_mutex_lock(&lock);
    bool any = codes != NULL;
    pthread_mutex_unlock(&lock);
    return any;
}

/* Programs are gone, and so is what was compiled for them, but for what a thread is at. */
static void close_all(void) {
    const struct timespec pause = {0, 1000000};
    end_compiling(10000);
    for (int i = 0; i < 1000 && has_codes(); i++) nanosleep(&pause, NULL);
    compiler = UNKNOWN; /* it may have been stopped while it was tried */
    atomic_store(&ending, false);
}

/* A compiler that makes what this machine cannot run is found out in a process of its own. */
static bool check_compiler(void) {
    static const char format[] =
        "#define TNI_ISA_%s\n#define TNI_REAL_f32\n#include \"loop.h\"\n#include <stdio.h>\n"
        "int main(int n, char **words) {\n    float x[VL];\n    for (int i = 0; i < VL; i++) x[i] = (float)(n - 1);\n"
        "    v_store(TN_F32, x, 0, f_sigmoid(f_tanh(f_exp(apart(v_load(TN_F32, x, 0))))));\n"
        "    if (fabsf(x[VL - 1] - 0.68169975f) < 1e-5f) puts(\"works\");\n    return 0;\n}\n";
    char text[1024], path[512];
    size_t bytes = 0;
    snprintf(text, sizeof text, format, tni_loops_isa());
    if (!write_text("try.c", text)) return false;
    compile("try.c", "try", false);
    if (!path_in_folder(path, sizeof path, "try") || access(path, X_OK) != 0) return false;
    run((char *[]){path, NULL});
    char *said = read_whole("said", &bytes);
    bool works = said && strcmp(said, "works\n") == 0;
    tni_free(said);
    return works;
}

/* ---- loaded code ------------------------------------------------------------------------------------------------- */

/* From memory, by a file that has no name. The loader takes two libraries whose paths are spelt alike for one, and
 * numbers of files come again: each is spelt in its own way. */
void *tni_open_library(const char *data, size_t bytes) {
    static _Atomic uint32_t count;
    char path[256];
    int file = memfd_create("tenon", MFD_CLOEXEC);
    if (file < 0) return NULL;
    size_t done = 0, n = (size_t)snprintf(path, sizeof path, "/proc/self/fd");
    for (uint32_t bits = atomic_fetch_add(&count, 1) + 1; bits; bits /= 2)
        n += (size_t)snprintf(path + n, sizeof path - n, bits % 2 ? "/." : "//.");
    snprintf(path + n, sizeof path - n, "/%d", file);
    for (ssize_t some = 1; done < bytes && some > 0; done += some > 0 ? (size_t)some : 0)
        some = write(file, data + done, bytes - done);
    void *library = done == bytes ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    close(file);
    return library;
}

static bool load(struct tni_c_code *code, const char *data, size_t bytes) {
    void *library = tni_open_library(data, bytes);
    tni_c_loop *loops = library ? tni_malloc((size_t)code->n_loops * sizeof *loops) : NULL;
    bool all = loops != NULL;
    for (int32_t i = 0; i < code->n_loops && all; i++) {
        char name[32];
        snprintf(name, sizeof name, "tn_loop_%d", (int)i + 1);
        void *found = dlsym(library, name);
        memcpy(&loops[i], &found, sizeof found);
        all = found != NULL;
    }
    if (all) {
        code->library = library;
        atomic_store_explicit(&code->loops, loops, memory_order_release);
    } else {
        tni_free(loops);
        if (library) dlclose(library);
    }
    return all;
}

static void compile_text(struct tni_c_code *code, tni_cache_entry *entry) {
    size_t bytes = 0;
    if (atomic_load(&ending) || !make_folder()) return;
    if (compiler == UNKNOWN) {
        bool works = check_compiler();
        lacks_bf16 = !works && tni_cpu_bf16();
        compiler = works || (lacks_bf16 && check_compiler()) ? WORKS : BROKEN;
    }
    if (compiler == WORKS && write_text("loops.c", code->source)) {
        compile("loops.c", "loops.so", true);
        char *data = read_whole("loops.so", &bytes);
        if (data && load(code, data, bytes)) tni_cache_put(entry, data, bytes);
        tni_free(data);
    }
    remove_folder();
}

/* One at a time: `busy` is ours. */
static void make(struct tni_c_code *code) {
    tni_cache_entry entry;
    tni_cached found;
    tni_cache_open(&code->key, &entry, &found); /* another process may be at it */
    if (!found.data || !load(code, found.data, found.bytes)) compile_text(code, &entry);
    tni_free(found.data);
    tni_cache_close(&entry);
    pthread_mutex_lock(&lock);
    busy = false;
    pthread_mutex_unlock(&lock);
}

/* It goes with its last user. */
static void let_go(struct tni_c_code *code) {
    pthread_mutex_lock(&lock);
    bool last = --code->users == 0;
    struct tni_c_code **at = &codes;
    while (last && *at != code) at = &(*at)->next;
    if (last) *at = code->next;
    pthread_mutex_unlock(&lock);
    if (!last) return;
    tni_free(atomic_load(&code->loops));
    if (code->library) dlclose(code->library);
    tni_free(code->source);
    tni_free(code);
}

static void *make_in_thread(void *code) {
    make(code);
    let_go(code);
    return NULL;
}

/* The thread's code must stay where it is, even if whoever opened the library closes it. */
static void stay(void) {
    Dl_info about;
    if (dladdr(&lock, &about) && about.dli_fname) dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

static void start_thread(struct tni_c_code *code) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    stay();
    bool started = false;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the host's threads' */
        started = pthread_create(&thread, &attributes, make_in_thread, code) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (started) return;
    pthread_mutex_lock(&lock);
    busy = false;
    pthread_mutex_unlock(&lock);
    let_go(code);
}

/* True: it is the caller's to make, or the thread's that it starts. Nobody waits here: who comes while another is at it
 * comes again. */
static bool take_over(struct tni_c_code *code, bool thread) {
    if (pthread_mutex_trylock(&lock) != 0) return false;
    bool ours = !busy && !code->tried && compiler != BROKEN;
    if (ours) busy = code->tried = true;
    code->users += ours && thread;
    pthread_mutex_unlock(&lock);
    return ours;
}

/* ---- programs ---------------------------------------------------------------------------------------------------- */

/* A fork between lock and unlock would leave the child with a locked list; and the compiler is its parent's. */
static void before_fork(void) {
    pthread_mutex_lock(&lock);
}
static void in_parent(void) {
    pthread_mutex_unlock(&lock);
}
static void in_child(void) {
    busy = false;
    atomic_store(&child, 0);
    atomic_store(&has_folder, false);
    pthread_mutex_unlock(&lock);
}

/* The headers are part of what is compiled. */
static tni_cache_key key_of_headers(void) {
    tni_cache_key key = tni_cache_key_of("%s", op_h, "");
    for (const tni_c_file *f = tni_c_files; f->name; f++)
        key = tni_cache_key_of("%llx %llx", f->text, (unsigned long long)key.hash[0], (unsigned long long)key.hash[1]);
    return key;
}

static tni_cache_key headers;
static void begin(void) {
    pthread_atfork(before_fork, in_parent, in_child);
    headers = key_of_headers();
}

/* Which compiler makes it makes no difference to what it does, so objects serve where there is none. */
static tni_cache_key key_of(const char *source) {
    return tni_cache_key_of("c %d, generator %d, headers %llx %llx", source, TNI_CACHE_SCHEMA, GENERATOR,
                            (unsigned long long)headers.hash[0], (unsigned long long)headers.hash[1]);
}

/* The one that is there, or a new one, which takes the text. Under the lock. */
static struct tni_c_code *code_of(char *source, int32_t n_loops, bool *is_new) {
    tni_cache_key key = key_of(source);
    struct tni_c_code *code = codes;
    while (code && memcmp(&code->key, &key, sizeof key) != 0) code = code->next;
    *is_new = !code;
    if (code || !(code = tni_calloc(1, sizeof *code))) return code;
    *code = (struct tni_c_code){.key = key, .source = source, .n_loops = n_loops, .next = codes};
    return codes = code;
}

/* Takes the lock, unless another thread has it and `waits` is false: who comes then comes again. */
static void look_on_disk(struct tni_c_code *code, bool waits) {
    tni_cached found = {0};
    if (waits) {
        pthread_mutex_lock(&lock);
    } else if (pthread_mutex_trylock(&lock) != 0) {
        return;
    }
    if (!code->looked) tni_cache_get(&code->key, &found);
    code->looked = true;
    if (found.data) load(code, found.data, found.bytes);
    pthread_mutex_unlock(&lock);
    tni_free(found.data);
}

static struct tni_c_code *find_code(char *source, int32_t n_loops) {
    bool is_new = false;
    pthread_mutex_lock(&lock);
    struct tni_c_code *code = code_of(source, n_loops, &is_new);
    if (code) code->users++;
    pthread_mutex_unlock(&lock);
    if (!is_new || !code) tni_free(source);
    return code;
}

static bool is_asked_for(const char *when) {
    const char *jit = getenv("TENON_JIT");
    return jit && strcmp(jit, when) == 0;
}

static bool accepts(const tni_program *program) {
    return !is_asked_for("0") && (is_asked_for("now") || program->cost.bytes >= TNI_C_BYTES);
}

static tn_status emit(tni_program *program, tni_text *text) {
    tni_emit_c(program, text);
    return TN_OK;
}

/* Nothing fails here: what is not compiled is interpreted. */
static tn_status look(tni_program *program, const tn_call *call) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool now = is_asked_for("now");
    (void)call;
    pthread_once(&once, begin);
    tni_text text = {0};
    int32_t n_loops = tni_emit_c(program, &text);
    if (n_loops == 0 || text.failed) {
        tni_free(text.data);
        return TN_OK;
    }
    struct tni_c_code *code = tni_on_cpu(program)->code = find_code(text.data, n_loops);
    if (code && (now || program->cost.bytes >= TNI_C_BYTES_SOON)) look_on_disk(code, true);
    if (now && code && !atomic_load(&code->loops) && take_over(code, false)) make(code);
    return TN_OK;
}

/* For each call; NULL: none yet. */
static const tni_c_loop *loops_of(struct tni_c_code *code) {
    if (!code) return NULL;
    const tni_c_loop *loops = atomic_load_explicit(&code->loops, memory_order_acquire);
    if (loops || atomic_load_explicit(&code->calls, memory_order_relaxed) > MOST_CALLS) return loops;
    int32_t calls = atomic_fetch_add_explicit(&code->calls, 1, memory_order_relaxed) + 1;
    if (calls > 1) look_on_disk(code, false);
    loops = atomic_load_explicit(&code->loops, memory_order_acquire);
    if (!loops && calls >= TNI_C_CALLS && take_over(code, true)) start_thread(code);
    return loops;
}

static tn_status run_program(const tni_program *program, const tn_call *call) {
    return tni_interpret(program, call, loops_of(tni_on_cpu(program)->code));
}

static void release(tni_program *program) {
    struct tni_c_code *code = tni_on_cpu(program) ? tni_on_cpu(program)->code : NULL;
    if (code) let_go(code);
}

bool tni_program_is_compiled(const tni_program *program) {
    if (program->backend != &tni_c_backend) return false;
    const struct tni_c_code *code = tni_on_cpu(program)->code;
    return code && atomic_load(&code->loops);
}

const tni_backend tni_c_backend = {.name = "c",
                                   .device = TN_CPU,
                                   .keeps_shared = true,
                                   .slices = true,
                                   .accepts = accepts,
                                   .plan = tni_plan_cpu,
                                   .emit = emit,
                                   .load = look,
                                   .run = run_program,
                                   .release = release,
                                   .close = close_all};
