/* Declarations that guard.c and exports.go share. */
#ifndef ASHLAR_GUARD_H
#define ASHLAR_GUARD_H

#include "ashlar.h"

/* The results of one call of a Go function besides its status. Each thread has one. */
typedef struct ashlar_call {
	uint64_t address;
	const char *message; /* of the last failure */
	int32_t inject;      /* in builds for tests: panic */
	char text[8192];
} ashlar_call;

#endif
