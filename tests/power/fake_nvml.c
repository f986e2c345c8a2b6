/* A scripted libnvidia-ml.so.1: the file named by FAKE_NVML says what each board is, draws and refuses.

   count N            boards
   init CODE          what nvmlInit returns
   K name|uuid|bus|mig TEXT     (mig may come several times)
   K power T:W,T:W    watts from T the T-th second on, a step function
   K KEY NUMBER       limit, default, clock, most, temperature, reasons (W, W, MHz, MHz, C, bits), arch,
                      scale (of the energy counter), back (seconds after which the counter starts again),
                      average (seconds over which power is an average), period (of the counter), used (bytes)
   K pids P,P         processes that compute
   K fail FUNCTION CODE FROM COUNT   COUNT calls from the FROM-th on return CODE (COUNT 0: all of them)
*/
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BOARDS = 8, STEPS = 16, PARTS = 7, FAILS = 8 };
typedef struct {
    char name[96], uuid[96], bus[32], mig[PARTS][96];
    int migs, steps, fails, pids, pid[8];
    double at[STEPS], watts[STEPS], limit, deflimit, clock, most, temperature, reasons, arch, scale, back, average,
        period, used;
    struct { char function[64]; int code, from, count, calls; } fail[FAILS];
} Board;
static Board boards[BOARDS];
static int count, init_code;
static double seconds;

static double now(void) { return seconds; }
void fake_set(double t) { seconds = t; } /* time passes when the test says so */

static void number(Board *b, const char *key, double v) {
    double *at = !strcmp(key, "limit") ? &b->limit : !strcmp(key, "default") ? &b->deflimit
        : !strcmp(key, "clock") ? &b->clock : !strcmp(key, "most") ? &b->most
        : !strcmp(key, "temperature") ? &b->temperature : !strcmp(key, "reasons") ? &b->reasons
        : !strcmp(key, "arch") ? &b->arch : !strcmp(key, "scale") ? &b->scale : !strcmp(key, "back") ? &b->back
        : !strcmp(key, "average") ? &b->average : !strcmp(key, "period") ? &b->period : &b->used;
    *at = v;
}
static void list(Board *b, const char *key, char *text) {
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (!strcmp(key, "pids")) b->pid[b->pids++] = atoi(word);
        else { sscanf(word, "%lf:%lf", &b->at[b->steps], &b->watts[b->steps]); b->steps++; }
    }
}
static void read_script(void) {
    char line[512], key[64], rest[400];
    int k;
    FILE *f = fopen(getenv("FAKE_NVML") ? getenv("FAKE_NVML") : "", "r");
    memset(boards, 0, sizeof boards);
    for (k = 0; k < BOARDS; k++) {
        Board *b = &boards[k];
        sprintf(b->name, "NVIDIA H200"); sprintf(b->uuid, "GPU-%08d-0000", k); sprintf(b->bus, "00000000:%02X:00.0", 16 * (k + 1));
        b->watts[0] = 100; b->scale = 1; b->limit = b->deflimit = 700; b->clock = b->most = 1980; b->temperature = 40;
        b->arch = 9; b->period = 0.02;
    }
    count = 1; init_code = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "count %d", &count) == 1 || sscanf(line, "init %d", &init_code) == 1) continue;
        if (sscanf(line, "%d %63s %399[^\n]", &k, key, rest) != 3) continue;
        Board *b = &boards[k];
        if (!strcmp(key, "name")) strcpy(b->name, rest);
        else if (!strcmp(key, "uuid")) strcpy(b->uuid, rest);
        else if (!strcmp(key, "bus")) strcpy(b->bus, rest);
        else if (!strcmp(key, "mig")) strcpy(b->mig[b->migs++], rest);
        else if (!strcmp(key, "power") || !strcmp(key, "pids")) list(b, key, rest);
        else if (!strcmp(key, "fail")) {
            sscanf(rest, "%63s %d %d %d", b->fail[b->fails].function, &b->fail[b->fails].code, &b->fail[b->fails].from,
                   &b->fail[b->fails].count);
            b->fails++;
        } else number(b, key, atof(rest));
    }
    if (f) fclose(f);
}
static int refused(Board *b, const char *function) {
    for (int k = 0; k < b->fails; k++)
        if (!strcmp(b->fail[k].function, function)) {
            int call = b->fail[k].calls++;
            if (call >= b->fail[k].from && (!b->fail[k].count || call < b->fail[k].from + b->fail[k].count))
                return b->fail[k].code;
        }
    return 0;
}
static double joules(Board *b, double until) { /* the area under the steps since the origin */
    double sum = 0;
    for (int k = 0; k == 0 || k < b->steps; k++) {
        double start = k ? b->at[k] : 0, end = k + 1 < b->steps && b->at[k + 1] < until ? b->at[k + 1] : until;
        if (end > start) sum += b->watts[k] * (end - start);
    }
    return sum;
}
static double power(Board *b) {
    double t = now(), over = b->average > 0 ? b->average : 1e-6;
    return (joules(b, t) - joules(b, t - over)) / over;
}
#define ASK(name) if (refused(d, #name)) { int c = 0; for (int k = 0; k < d->fails; k++) if (!strcmp(d->fail[k].function, #name)) c = d->fail[k].code; return c; }

int nvmlInitWithFlags(unsigned f) { read_script(); return init_code; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int c) { static char text[32]; sprintf(text, "code %d", c); return text; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned k, Board **out) {
    Board *d = &boards[k];
    if ((int)k >= count) return 2;
    ASK(handle) *out = d; return 0;
}
static int is_part(Board *d) { return (char *)d < (char *)boards || (char *)d >= (char *)(boards + BOARDS); }
int nvmlDeviceGetUUID(Board *d, char *out, unsigned n) {
    if (is_part(d)) { strncpy(out, (char *)d, n); return 0; }
    ASK(uuid) strncpy(out, d->uuid, n); return 0;
}
int nvmlDeviceGetName(Board *d, char *out, unsigned n) { ASK(name) strncpy(out, d->name, n); return 0; }
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char text[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(Board *d, Pci *out) {
    memset(out, 0, sizeof *out);
    sscanf(d->bus, "%x:%x:%x", &out->domain, &out->bus, &out->device); strcpy(out->text, d->bus); return 0;
}
int nvmlDeviceGetMigMode(Board *d, unsigned *now_, unsigned *later) { *now_ = *later = d->migs > 0; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(Board *d, unsigned *n) { *n = PARTS; return 0; }
static char part_names[BOARDS][PARTS][96];
int nvmlDeviceGetMigDeviceHandleByIndex(Board *d, unsigned k, void **out) {
    if ((int)k >= d->migs) return 6;
    strcpy(part_names[d - boards][k], d->mig[k]); *out = part_names[d - boards][k]; return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(Board *d, unsigned long long *mj) {
    double t = now(), seen = d->period > 0 ? (long)(t / d->period) * d->period : t;
    ASK(energy)
    *mj = 1000 * (1e5 + d->scale * joules(d, seen)) - (d->back > 0 && t > d->back ? 1000 * 1e5 : 0);
    return 0;
}
int nvmlDeviceGetPowerUsage(Board *d, unsigned *mw) { ASK(power) *mw = 1000 * power(d); return 0; }
typedef struct { unsigned field, scope; long long stamp, latency; int type, code; union { double d; unsigned ui; unsigned long long ull; } value; } Field;
int nvmlDeviceGetFieldValues(Board *d, int n, Field *f) {
    ASK(fields)
    for (int k = 0; k < n; k++) {
        f[k].code = refused(d, f[k].field == 186 ? "instant" : "averaged") ? 3 : 0;
        f[k].value.ui = 1000 * power(d);
    }
    return 0;
}
int nvmlDeviceGetArchitecture(Board *d, unsigned *out) { ASK(arch) *out = d->arch; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(Board *d, unsigned *mw) { ASK(limit) *mw = 1000 * d->limit; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(Board *d, unsigned *mw) { ASK(default) *mw = 1000 * d->deflimit; return 0; }
int nvmlDeviceGetClockInfo(Board *d, int kind, unsigned *mhz) { ASK(clock) *mhz = d->clock; return 0; }
int nvmlDeviceGetMaxClockInfo(Board *d, int kind, unsigned *mhz) { ASK(most) *mhz = d->most; return 0; }
int nvmlDeviceGetTemperature(Board *d, int kind, unsigned *c) { ASK(temperature) *c = d->temperature; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Board *d, unsigned long long *bits) { ASK(reasons) *bits = d->reasons; return 0; }
typedef struct { unsigned pid; unsigned long long used; unsigned a, b; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Board *d, unsigned *n, Process *out) {
    unsigned room = *n;
    ASK(pids)
    *n = d->pids;
    if (!d->pids) return 0;
    if (!out || room < *n) return 7;
    for (int k = 0; k < d->pids; k++) { out[k].pid = d->pid[k]; out[k].used = 1 << 20; out[k].a = out[k].b = -1; }
    return 0;
}
typedef struct { unsigned long long total, free, used; } MemoryInfo;
int nvmlDeviceGetMemoryInfo(Board *d, MemoryInfo *m) { ASK(memory) m->total = 1ull << 37; m->used = d->used; m->free = m->total - m->used; return 0; }
