/* What guard.c and the Go functions behind it share. */
#ifndef ASHLAR_GUARD_H
#define ASHLAR_GUARD_H

#include "ashlar.h"

/* A call is the results of one call of a Go function besides its status. There is one for each thread. */
typedef struct ashlar_call {
	uint64_t address;
	const char *message; /* of the last failure */
	int32_t inject;      /* in builds for tests: panic */
	char text[8192];
} ashlar_call;

#endif
