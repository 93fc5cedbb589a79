/* `tenon doctor`: a check is a row, with the function that looks; what it finds is a result. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tenon/status.h>

typedef enum check_state { NO_STATE, PASSED, WARNED, FAILED, SKIPPED } check_state;

/* Goes through a pipe as it is. */
typedef struct doctor_result {
    check_state state;
    char observed[1536], required[256];
    char reason[1024]; /* "": nothing is wrong */
    char fix[1024];    /* commands, a line each */
    double seconds;
} doctor_result;

typedef struct doctor_row {
    const char *id;
    const char *what; /* a line for --help */
    void (*run)(doctor_result *r);
    enum {
        TOGETHER, /* in one process with its neighbours */
        ALONE,    /* in a process of its own */
        HERE      /* in this process */
    } where;
} doctor_row;

/* In the order of their files; each table ends with a row without an id. */
extern const doctor_row system_checks[], gpu_checks[], library_checks[], compiler_checks[], smoke_checks[];

/* ---- for whoever adds checks: python/tenon/doctor.py ------------------------------------------------------------- */

TN_API void tni_doctor_add(const char *id, const char *what, void (*run)(doctor_result *r));
/* state: "PASS", "WARN", "FAIL" or "SKIP" */
TN_API void tni_doctor_say(doctor_result *r, const char *state, const char *observed, const char *required,
                           const char *reason, const char *fix);
TN_API double tni_doctor_timeout(void); /* seconds that a check may take */
TN_API int tni_doctor_cuda(void);       /* the driver's version of CUDA: 13000; 0: there is no GPU to use */
/* With NVRTC open: libraries of which this process has more than one, "libnvrtc: FILE and FILE; …", "" where there are
 * none. The caller frees it with tn_free; NULL: no memory. */
TN_API char *tni_doctor_duplicates(void);

/* ---- for checks -------------------------------------------------------------------------------------------------- */

/* Each adds to its field; with a NULL format nothing. */
void observe(doctor_result *r, const char *format, ...) TN_PRINTF(2, 3);
void require(doctor_result *r, const char *format, ...) TN_PRINTF(2, 3);
/* The worse state stays; a reason and a fix are added to those before. */
void judge(doctor_result *r, check_state state, const char *reason, const char *fix, ...) TN_PRINTF(4, 5);

/* Runs checks, in processes of their own but for those that are to be run here, and hands each result to `done`. A
 * check that crashes or takes more than `seconds` has failed, and the others go on. */
void run_checks(const doctor_row *const *rows, int n, double seconds, doctor_result *results,
                void (*done)(const doctor_row *row, const doctor_result *r));

/* A program, found on the PATH. */
typedef struct program_end {
    bool found, late;   /* late: it was ended, after `seconds` */
    int status, signal; /* exit status; or the signal that ended it, else 0 */
    char output[16384]; /* the first of standard output and error */
} program_end;
program_end run_program(char *const *words, double seconds);
/* "was ended by signal 11 (Segmentation fault)", "did not end within 5 s", "ended with status 3" */
void describe_end(const program_end *end, double seconds, char text[static 128]);
bool find_program(const char *name, char *path, size_t size); /* the file that a shell would run */
/* The last line that says something. */
const char *last_line(char *text);

/* How this system installs it, as this user: install("gcc libc6-dev", "gcc glibc-devel", …). */
typedef struct package_names {
    const char *apt, *dnf, *zypper, *pacman;
    const char *otherwise; /* what to do where none of these is there */
} package_names;
const char *install_command(const package_names *names);

/* The folder that stands for / where the machine is looked at: TENON_DOCTOR_ROOT, for tests. */
bool machine_path(char *path, size_t size, const char *name);
bool read_line(const char *name, char *text, size_t size); /* the first line of a file of the machine */

const char *install_driver(void);

/* The driver that a major version of CUDA needs at least: 13 is 580. */
int least_driver(int cuda_major);
int driver_cuda_major(void); /* that the driver found here is for; 0: there is none */
/* The GPU that smoke tests use is there: the driver starts and sees one. */
bool has_gpu(void);
/* LD_LIBRARY_PATH has the folder of this file: what is installed elsewhere is not looked at. */
bool is_from_library_path(const char *file);
#define LEAVE_LIBRARY_PATH "unset LD_LIBRARY_PATH   # or take the folder of this library out"
/* The library that this is in: its file. */
bool own_file(char *path, size_t size);

#endif
