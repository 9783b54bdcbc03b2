/* What is run again and again while calls fail: one way through each part of the core. */
#ifndef YDL_TESTS_SCENARIOS_H
#define YDL_TESTS_SCENARIOS_H

#include <stdbool.h>

#include "base/status.h"
#include "fault.h"

struct scenario {
    const char *name;
    /* With these faults: what the first failing core function returned, else YDL_OK; then what was
     * made is right, or the running test fails. Leaves nothing behind. */
    enum ydl_status (*run)(const struct fault_plan *plan, struct ydl_error *err);
    /* Calls whose failure need not fail the run (it is YDL_OK, or a doubt decided to the safe
     * side). -1 ends the list. */
    int tolerated[16];
    unsigned max_nth; /* 0: until no call is hit any more; else as far as this, by time */
};

extern const struct scenario fault_scenarios[];
extern const int fault_scenario_count;

/* Makes and removes what scenarios share. */
void fault_scenarios_setup(void);
void fault_scenarios_teardown(void);

#endif
