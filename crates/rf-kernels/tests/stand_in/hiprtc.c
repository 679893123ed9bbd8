/* A libhiprtc that starts clang: the tests of code that is compiled at run time need no ROCm.
 *
 * TEST_HIPRTC_CLANG is the compiler. TEST_HIPRTC_FAILS makes each compilation fail. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 1, INVALID_INPUT = 3, COMPILATION = 6 };

struct program {
    char *text;
    char *code;
    size_t code_bytes;
    const char *log;
};

int hiprtcVersion(int *major, int *minor) {
    *major = 6;
    *minor = 4;
    return SUCCESS;
}

const char *hiprtcGetErrorString(int status) {
    return status == COMPILATION ? "HIPRTC_ERROR_COMPILATION" : "HIPRTC_ERROR";
}

int hiprtcCreateProgram(struct program **out, const char *text, const char *name, int num_headers,
                        const char **headers, const char **header_names) {
    (void)name, (void)num_headers, (void)headers, (void)header_names;
    struct program *program = calloc(1, sizeof *program);
    if (program == NULL) return OUT_OF_MEMORY;
    program->text = strdup(text);
    program->log = "";
    *out = program;
    return program->text == NULL ? OUT_OF_MEMORY : SUCCESS;
}

int hiprtcDestroyProgram(struct program **program) {
    free((*program)->text);
    free((*program)->code);
    free(*program);
    *program = NULL;
    return SUCCESS;
}

static int read_code(struct program *program, const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return COMPILATION;
    fseek(file, 0, SEEK_END);
    program->code_bytes = (size_t)ftell(file);
    rewind(file);
    program->code = malloc(program->code_bytes + 1);
    size_t got = fread(program->code, 1, program->code_bytes, file);
    fclose(file);
    return got == program->code_bytes ? SUCCESS : COMPILATION;
}

int hiprtcCompileProgram(struct program *program, int num_options, const char **options) {
    const char *clang = getenv("TEST_HIPRTC_CLANG");
    if (clang == NULL || getenv("TEST_HIPRTC_FAILS") != NULL) {
        program->log = "the compiler of the test fails";
        return COMPILATION;
    }
    char source[] = P_tmpdir "/hiprtc-XXXXXX.hip", object[sizeof source + 3];
    int descriptor = mkstemps(source, 4);
    size_t length = strlen(program->text);
    if (descriptor < 0 || write(descriptor, program->text, length) != (ssize_t)length) return INVALID_INPUT;
    close(descriptor);
    snprintf(object, sizeof object, "%s.co", source);
    /* What hiprtc adds by itself. */
    const char *own[] = {clang, "-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output",
                         "-nogpuinc", "-nogpulib", source, "-o", object};
    int num_own = sizeof own / sizeof *own;
    const char **arguments = calloc((size_t)(num_own + num_options + 1), sizeof *arguments);
    memcpy(arguments, own, sizeof own);
    memcpy(arguments + num_own, options, (size_t)num_options * sizeof *options);
    pid_t child = fork();
    if (child == 0) {
        execvp(clang, (char **)arguments);
        _exit(127);
    }
    int status = 1;
    waitpid(child, &status, 0);
    free(arguments);
    int outcome = status == 0 ? read_code(program, object) : COMPILATION;
    unlink(source);
    unlink(object);
    return outcome;
}

int hiprtcGetProgramLogSize(struct program *program, size_t *bytes) {
    *bytes = strlen(program->log) + 1;
    return SUCCESS;
}

int hiprtcGetProgramLog(struct program *program, char *log) {
    strcpy(log, program->log);
    return SUCCESS;
}

int hiprtcGetCodeSize(struct program *program, size_t *bytes) {
    *bytes = program->code_bytes;
    return SUCCESS;
}

int hiprtcGetCode(struct program *program, char *code) {
    memcpy(code, program->code, program->code_bytes);
    return SUCCESS;
}
