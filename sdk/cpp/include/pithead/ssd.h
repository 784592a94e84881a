/* Host programs in C: applications of SSDlets on one or several drives. Link with -lpithead_ssd.
 *
 * Functions return null, -1 or 0 as said where they fail, and pithead_last_error() then tells why. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PitheadSsd PitheadSsd;
typedef struct PitheadApplication PitheadApplication;
typedef struct PitheadReader PitheadReader;
typedef struct PitheadWriter PitheadWriter;

/* Why the last function that failed on this thread did. */
const char *pithead_last_error(void);

/* A folder as a drive in this process, or the drive on the network at pithead://HOST:PORT or pithead+tls://HOST:PORT; null on failure.
 * For drives on the network, variables of the environment say whom to trust and who this is, as for the program `pithead`:
 * PITHEAD_TLS_CA, PITHEAD_TLS_CERT, PITHEAD_TLS_KEY, PITHEAD_TOKEN or PITHEAD_TOKEN_FILE. */
PitheadSsd *pithead_ssd_open(const char *place);
void pithead_ssd_close(PitheadSsd *ssd);

/* Loads a module that is a file of the drive; its number, 0 on failure. A drive on the network keeps modules by their names, as
 * `pithead program load` has loaded them: /doubler.wasm and doubler are the same there. */
uint64_t pithead_module_load(const PitheadSsd *ssd, const char *name);
int32_t pithead_module_unload(const PitheadSsd *ssd, uint64_t module);

PitheadApplication *pithead_application_new(const PitheadSsd *ssd, const char *name);
/* One application over several drives on the network; null on failure. */
PitheadApplication *pithead_application_over(const PitheadSsd *const *ssds, size_t count, const char *name);
void pithead_application_free(PitheadApplication *application);
/* 1, or -1 on failure. */
int32_t pithead_application_start(const PitheadApplication *application);
int32_t pithead_application_wait(const PitheadApplication *application);
int32_t pithead_application_stop(const PitheadApplication *application);

/* Makes an SSDlet at a drive of the application; its number, -1 on failure. `types` are those of its arguments with commas between them; `arguments` are their
 * values as a row, a file as its name. */
int32_t pithead_ssdlet_new(const PitheadSsd *ssd, const PitheadApplication *application, uint64_t module, const char *name,
                           const char *types, const uint8_t *arguments, size_t length);

/* Connects an output to an input, of one application or of two; 1, or -1 on failure. */
int32_t pithead_connect(const PitheadApplication *from, int32_t from_ssdlet, uint32_t output, const PitheadApplication *to,
                        int32_t to_ssdlet, uint32_t input);

/* An output for the host program; null on failure. */
PitheadReader *pithead_reader_new(const PitheadApplication *application, int32_t ssdlet, uint32_t output, const char *types);
/* Waits for a batch: 1 with its place, which holds until the next call; 0 at the end; -1 on failure. */
int32_t pithead_reader_get(PitheadReader *reader, const uint8_t **batch, size_t *length);
void pithead_reader_free(PitheadReader *reader);

/* An input for the host program; null on failure. */
PitheadWriter *pithead_writer_new(const PitheadApplication *application, int32_t ssdlet, uint32_t input, const char *types);
/* Sends whole rows: 1; 0 if nobody reads any more; -1 on failure. */
int32_t pithead_writer_put(const PitheadWriter *writer, const uint8_t *batch, size_t length);
void pithead_writer_free(PitheadWriter *writer);

#ifdef __cplusplus
}
#endif
