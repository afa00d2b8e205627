/* The script of verbs calls of the differential trace, by libmlx5: the scene that is named.
 * script_linux_test.go has the same calls for our driver. */
#include "script.h"

static const struct { const char *name; void (*play)(void); } scenes[] = {
	{"connected", connected}, {"routed", routed}, {"events", events}, {"receives", receives}, {"shared", shared}, {"unreliable", unreliable},
	{"datagrams", datagrams}, {"addresses", addresses}, {"inlined", inlined}, {"gathered", gathered}, {"windows", windows}, {"large", large},
	{"resized", resized}, {"grouped", grouped}, {"heard", heard}, {"agreed", agreed},
};

int main(int n, char **args)
{
	MUST(n == 2);
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
		if (!strcmp(scenes[i].name, args[1])) {
			scenes[i].play();
			return 0;
		}
	fprintf(stderr, "no scene %s\n", args[1]);
	return 1;
}
