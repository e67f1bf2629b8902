/* Declarations that guard.c and exports.go share. */
#ifndef ASHLAR_GUARD_H
#define ASHLAR_GUARD_H

#include "ashlar.h"

enum { MAX_TAGS = 16 };

/* The results of one call of a Go function besides its status, and the tags of requests. Each thread has one. */
typedef struct ashlar_call {
	uint64_t address;
	const char *message; /* of the last failure */
	int32_t inject;      /* in builds for tests: how to panic */
	int32_t num_tags;    /* of the thread's requests: the last one counts */
	int32_t tags[MAX_TAGS];
	char text[8192];
} ashlar_call;

#endif
