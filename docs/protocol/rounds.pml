/* The protocol of rounds, plan, restarts and hand-overs: a model for spin (make model).
 *
 * Two slots train for STEPS steps in lockstep. Slot 1 may be evicted, the function of slot 0 may hand over to a
 * successor, functions and supervisors may be killed or be taken for lost while they live, and whatever stands still
 * between two lines of a process is a function that is paused there. An atomic block is one request to the coordinator.
 *
 * What it says of the code: publish, plan and claim are `exchange/memory.py` (and the scripts in `exchange/redis`), the
 * worker is `worker/attempts.py` and `worker/loop.py`, the successor `function/succession.py`, the supervisor
 * `supervisor/incoming.py` and `takeover.py`, the driver `driver/recovery/`.
 *
 * What is left out: money, evaluation, stop rules, bounded staleness, scatter-reduce, lost data of the servers. A part of
 * a checkpoint may be on its way to the storage for as long as it likes.
 *
 * Checked: the assertions, and that no process waits for ever (invalid end states). That the run ends (ltl ends) is
 * written down and was not searched yet: it needs fairness.
 * Macros of the form WITHOUT_... plant a fault, which the checker must find; see tests/protocol/test_model.py.
 */
#define P 2
#ifndef STEPS
#define STEPS 4
#endif
#ifndef KILLS
#define KILLS 1       /* workers that are killed */
#endif
#ifndef DOUBTS
#define DOUBTS 0      /* workers that live and are taken for lost */
#endif
#ifndef SUPERVISORS
#define SUPERVISORS 2 /* supervisors in all; each but the last may be killed, or live and be taken for lost */
#endif
#ifndef SUCCESSORS
#define SUCCESSORS 1  /* functions that are invoked to take slot 0 over */
#endif
#ifndef MOST_RESTARTS
#define MOST_RESTARTS 3
#endif
#define NEVER 99
#define ALL 3
#define AT(step, slot) ((step) * P + (slot))
#define BIT(slot) (1 << (slot))

/* -- the coordinator */
byte fence, base, origin;          /* the newest restart: its number, and its checkpoint's step and number */
byte limit[8] = NEVER;             /* the newest step, by restart, behind which no later one has gone back */
byte claim[P];                     /* the function that holds a slot; 0: nobody */
bit settled[P];                    /* whether a slot's function has ended properly, */
bit left_behind[P];                /* and whether that was before it had heard of a restart which needs it */
byte latest;                       /* the newest step that anybody has published */
byte leaves[P] = NEVER;            /* the plan: the first step without a slot, */
byte checkpoint;                   /* the step after which all store their state, */
byte hand[P];                      /* and the last step of a slot's function, 0: none is announced */
byte arrived[P * (STEPS + 1)];     /* the function that arrived at a round for a slot */
byte given[P];                     /* the function that gave a leaving slot's residual */
byte chief;                        /* the supervisor that holds the supervisor's claim */
bit waits[P];                      /* whether a successor has a lease as one that waits for the slot */
byte left_at[P], left_in[P];       /* where a slot was handed over: after this step, after this restart */

/* -- the object storage: parts of checkpoints, see PART; 0: none */
byte part[(MOST_RESTARTS + 1) * P * (STEPS + 1)];

/* -- the bus: a successor is ready, a function has handed over */
bit ready[P], handed[P];

/* -- the platform, and what only this model knows */
byte n_functions, n_there[P];      /* functions so far, and those of a slot that have not ended, waiting ones aside */
bit is_dead[16];
byte kills = KILLS, doubts = DOUBTS;
byte sets[STEPS + 1];              /* the slots that take part in a step, as the first worker saw them */
byte holder[P * (STEPS + 1)];      /* as `arrived`, but also once the round is over */
bit excused;                       /* whether a worker was killed or taken for lost */
bit is_over;

/* The slots that take part in a step by a plan. */
#define TAKING_PART(l0, l1, step) (((l0) > (step)) + 2 * ((l1) > (step)))
#define HERE(step) ((arrived[AT(step, 0)] > 0) + 2 * (arrived[AT(step, 1)] > 0))
/* A part of a checkpoint says who takes part in the next step, and has the residuals that were applied. */
#define PART(set, residuals) (4 * (set) + (residuals))
#define SET(where) (part[where] / 4)
#define RESIDUALS(where) (part[where] % 4)
/* Its key has the number of the restart after which it was stored. */
#ifdef WITHOUT_NUMBERS_IN_KEYS
#define KEY(number, step, slot) (AT(step, slot))
#else
#define KEY(number, step, slot) ((number) * P * (STEPS + 1) + AT(step, slot))
#endif
#define STORED(number, step) ((part[KEY(number, step, 0)] > 0) + 2 * (part[KEY(number, step, 1)] > 0))
/* Whether all parts of a checkpoint are there, as each of them says. */
#define IS_WHOLE(number, step) (STORED(number, step) && \
    !((SET(KEY(number, step, 0)) | SET(KEY(number, step, 1))) & ~STORED(number, step)))

/* A function dies here, or not. */
inline may_die() {
    if
    :: atomic { kills > 0 && !is_over -> kills--; excused = 1; is_dead[me] = 1; goto gone }
    :: true
    fi
}

/* One part of a checkpoint is stored by a thread, while training goes on. */
proctype Writer(byte where, what, me) {
    if
    :: part[where] = what          /* at any time: also after a restart */
    :: is_dead[me]                 /* it dies with its function */
    :: is_over
    fi
}

proctype Worker(byte slot, me; bit is_successor) {
    byte mine, step, set, leaving; /* its restart, its newest step, who takes part, who leaves after it */
    byte from;                     /* the number of the checkpoint that it goes on from */
    byte l0, l1, stores, hands;    /* the plan as it knows it */
    byte steps, residuals;         /* its parameters: how many steps and whose residuals are in them */

    if
    :: is_successor ->
        atomic { waits[slot] = 1; ready[slot] = 1 }
        if
        :: atomic { claim[slot] == 0 && !settled[slot] -> claim[slot] = me; waits[slot] = 0; n_there[slot]++ }
        :: atomic { settled[slot] || is_over -> waits[slot] = 0; goto end }
        fi
    :: else -> skip
    fi;
again:
    atomic { mine = fence; step = base; from = origin }
    atomic {
        if
        :: claim[slot] == 0 -> claim[slot] = me
        :: claim[slot] == me
        :: else -> goto gone       /* another one has the slot */
        fi
    }
    atomic {                       /* the plan: where the slot was handed over, or the newest restart */
        l0 = leaves[0]; l1 = leaves[1]; stores = checkpoint; hands = hand[slot];
#ifdef WITHOUT_WORD_OF_HAND_OVER
        step = (hands > 0 && (TAKING_PART(l0, l1, hands + 1) & BIT(slot)) -> hands : step)
#else
        from = (left_at[slot] > 0 && left_in[slot] == mine -> mine : from);
        step = (left_at[slot] > 0 && left_in[slot] == mine -> left_at[slot] : step)
#endif
    }
    if                             /* its own part, and that of the other one, which may still be on its way */
    :: step == 0 -> atomic { steps = 0; residuals = 0 }
#ifdef WITHOUT_WAITING_FOR_PARTS
    :: step > 0 ->
        atomic {
            assert(IS_WHOLE(from, step));
            steps = step; residuals = RESIDUALS(KEY(from, step, slot))
        }
#else
    :: step > 0 ->
        if
        :: atomic {
                IS_WHOLE(from, step) && part[KEY(from, step, slot)] > 0 ->
                steps = step; residuals = RESIDUALS(KEY(from, step, slot))
            }
        :: fence != mine -> goto again
        :: is_over -> goto gone
        fi
#endif
    fi;
    do
    :: step == STEPS -> break
    :: step < STEPS ->
        step++;
        set = TAKING_PART(l0, l1, step);
        may_die();
        /* publish: the fence, the claim, the arrival, and the newest plan in the answer */
        atomic {
            if
            :: fence != mine -> goto again
            :: else
            fi;
#ifndef WITHOUT_CLAIM_CHECK
            if
            :: claim[slot] != me -> goto gone
            :: else
            fi;
#endif
            latest = (step > latest -> step : latest);
            assert(sets[step] == 0 || sets[step] == set);  /* a plan takes effect at one step for all */
            sets[step] = set;
            /* no round has frames of one slot by two functions */
            assert(holder[AT(step, slot)] == 0 || holder[AT(step, slot)] == me);
            holder[AT(step, slot)] = me; arrived[AT(step, slot)] = me;
            l0 = leaves[0]; l1 = leaves[1]; stores = checkpoint; hands = hand[slot]
        }
        if
        :: atomic { fence == mine && HERE(step) == set -> skip }
        :: fence != mine -> goto again
        :: is_over -> goto gone
        fi;
        assert(steps == step - 1); /* no step is applied twice, and none is left out */
        steps = step;

        leaving = set & ~TAKING_PART(l0, l1, step + 1);
        if
        :: leaving & BIT(slot) ->  /* its last step: its residual is for those who stay */
            may_die();
            atomic {
                if
                :: fence != mine -> goto again
                :: else
                fi;
                if
                :: claim[slot] != me -> goto gone
                :: else -> given[slot] = me
                fi
            }
            may_die();
            atomic {
                left_behind[slot] = (fence != mine);  /* its last message has the number of the restart it knows */
#ifdef WITHOUT_NUMBER_IN_LAST_MESSAGE
                left_behind[slot] = 0;
#endif
                settled[slot] = 1;
                goto gone
            }
        :: leaving && !(leaving & BIT(slot)) ->
            if
            :: atomic { fence == mine && given[1 - slot] > 0 -> skip }
            :: fence != mine -> goto again
            :: is_over -> goto gone
            fi;
            assert(!(residuals & leaving));
            residuals = residuals | leaving
        :: !leaving -> skip
        fi;

        if
        :: step == stores || (hands == step && hands > 0) ->
            if
            :: hands == step ->    /* the part is stored, and the function leaves, if somebody waits for the slot */
                atomic {
                    if
                    :: fence != mine -> goto again
                    :: else -> part[KEY(mine, step, slot)] = PART(TAKING_PART(l0, l1, step + 1), residuals)
                    fi
                }
                may_die();
                if
#ifndef WITHOUT_LOOKING_WHO_WAITS
                :: !waits[slot] -> skip
                :: waits[slot] ->
#else
                :: true ->
#endif
                    handed[slot] = 1;
                    may_die();
                    /* release, only its own claim; the request may be carried out twice */
                    atomic {
                        if
                        :: claim[slot] == me -> claim[slot] = 0; left_at[slot] = step; left_in[slot] = mine
                        :: else
                        fi
                    }
#ifdef WITHOUT_OWNER_IN_RELEASE
                    if
                    :: claim[slot] = 0
                    :: true
                    fi;
#endif
                    goto gone
                fi
            :: else -> run Writer(KEY(mine, step, slot), PART(TAKING_PART(l0, l1, step + 1), residuals), me)
            fi
        :: else -> skip
        fi
    od;
    /* the end: every residual was applied once */
    assert(residuals == (l1 <= STEPS + 1 -> 2 : 0) + (l0 <= STEPS + 1 -> 1 : 0));
    may_die();
    atomic {
        if
        :: fence != mine -> goto again  /* the rounds at the end are not complete */
        :: else -> settled[slot] = 1
        fi
    }
gone:
    n_there[slot]--;
end:
    skip
}

inline announce_checkpoint() {
    atomic { checkpoint = (checkpoint > 0 && checkpoint == latest -> checkpoint : latest + 1) }
}

inline announce_hand_over(slot) {
    atomic {
        if
#ifndef WITHOUT_KEEPING_ANNOUNCED_STEPS
        :: hand[slot] > 0 && hand[slot] >= latest -> skip  /* some may know of it already, and others learn of it now */
#endif
        :: else ->
            checkpoint = latest + 1;
            hand[slot] = checkpoint
        fi
    }
}

inline announce_leave(slot) {
    atomic {
        if
#ifdef WITHOUT_ENOUGH_NOTICE
        :: leaves[slot] == NEVER -> leaves[slot] = latest + 1
#else
        :: leaves[slot] == NEVER -> leaves[slot] = latest + 2
#endif
        :: else
        fi
    }
}

proctype Supervisor(byte me) {
    bit is_waiting, has_heard, is_first = 1;
    byte seen, known;              /* the newest complete step, and the restart that it knows of */

    if
    :: me > 1 ->                   /* it takes over: the bus, then the step log, then the plan */
        atomic { is_waiting = ready[0] && !handed[0]; has_heard = ready[0] }
        atomic { seen = (arrived[AT(latest, 0)] > 0 && HERE(latest) == sets[latest] -> latest : (latest > 0 -> latest - 1 : 0)); known = fence }
        if
        :: is_waiting && hand[0] < seen -> announce_hand_over(0)
        :: else
        fi
    :: else
    fi;
    do
    :: chief != me || is_over -> break
    :: chief == me && !has_heard && ready[0] -> has_heard = 1; is_waiting = 1; announce_hand_over(0)
#ifndef WITHOUT_ANNOUNCING_AGAIN
    :: chief == me && has_heard && known != fence ->   /* a restart has forgotten hand-overs */
        atomic { known = fence; is_waiting = ready[0] && !handed[0] }
        if
        :: is_waiting -> announce_hand_over(0)
        :: else
        fi
#endif
    :: chief == me && is_first -> is_first = 0; announce_checkpoint()
    :: chief == me && leaves[1] == NEVER && latest < STEPS - 1 -> announce_leave(1)
    od
}

/* No function has the slot, or is about to take it. */
#define IS_LOST(slot) (n_there[slot] == 0 && (!settled[slot] || left_behind[slot]) && !(claim[slot] == 0 && waits[slot]))

inline invoke(slot, is_successor) {
    atomic { n_functions++; n_there[slot] = n_there[slot] + 1 - is_successor; run Worker(slot, n_functions, is_successor) }
}

active proctype Driver() {
    byte lost, whole, after, needed, replaced, late;
    byte n_supervisors = 1, n_successors, l0, l1;

    atomic { invoke(0, 0); invoke(1, 0); chief = 1; run Supervisor(1) }
    do
    :: settled[0] -> break         /* the model is stored */
    :: fence == MOST_RESTARTS -> break  /* it gives up */
    :: n_successors < SUCCESSORS && !settled[0] && n_there[0] > 0 -> n_successors++; invoke(0, 1)
    :: n_supervisors < SUPERVISORS && !is_over ->
        atomic { n_supervisors++; chief = n_supervisors; run Supervisor(n_supervisors) }
    :: atomic {
            fence < MOST_RESTARTS && !settled[0] && (IS_LOST(0) || IS_LOST(1) || doubts > 0) ->
            lost = IS_LOST(0) + 2 * IS_LOST(1);
            if
            :: lost
            :: !lost -> doubts--; excused = 1;
                if
                :: !settled[0] -> lost = 1
                :: !settled[1] -> lost = 2
                fi
            fi;
            assert(excused)        /* nothing is restarted without a cause */
        }
again:
        atomic {                   /* the newest whole checkpoint that no restart has abandoned */
            whole = STEPS; after = fence;
            do
            :: whole > 0 && whole <= limit[after] && IS_WHOLE(after, whole) -> break
            :: whole == 0 && after == 0 -> break
            :: whole == 0 && after > 0 -> whole = STEPS; after--
            :: else -> whole--
            od
        }
        atomic {                   /* who is needed, and not there */
            l0 = leaves[0]; l1 = leaves[1];
            needed = TAKING_PART(l0, l1, whole + 1);
            replaced = needed & (lost | (settled[0] + 2 * settled[1]))
        }
        if
        :: replaced == 0 ->        /* they had done their last steps by then */
            atomic {
                settled[0] = settled[0] | (lost & 1); settled[1] = settled[1] | ((lost & 2) >> 1);
                left_behind[0] = 0; left_behind[1] = 0;
                goto looked
            }
        :: else
        fi;
        atomic {                   /* roll back */
            late = 0;
            do
            :: late <= fence -> limit[late] = (limit[late] > whole -> whole : limit[late]); late++
            :: else -> break
            od;
            fence++; base = whole; origin = after; latest = whole; hand[0] = 0; hand[1] = 0;
            given[0] = 0; given[1] = 0;
            late = 0;
            do
            :: late <= STEPS ->
                arrived[AT(late, 0)] = 0; arrived[AT(late, 1)] = 0;
                holder[AT(late, 0)] = 0; holder[AT(late, 1)] = 0; sets[late] = 0;
                late++
            :: else -> break
            od;
            late = 0;
            if
            :: replaced & 1 -> claim[0] = 0; settled[0] = 0; left_behind[0] = 0
            :: else
            fi;
            if
            :: replaced & 2 -> claim[1] = 0; settled[1] = 0; left_behind[1] = 0
            :: else
            fi
        }
        if
        :: replaced & 1 -> invoke(0, 0)
        :: else
        fi;
        if
        :: replaced & 2 -> invoke(1, 0)
        :: else
        fi;
#ifndef WITHOUT_LATE_LOOK
        atomic {                   /* one that ended while this was decided is needed again */
            late = (settled[0] -> 0 : needed & ~replaced & (2 * settled[1]));
            if
            :: late && fence < MOST_RESTARTS -> lost = late; goto again
            :: else
            fi
        }
#endif
looked: skip
    od;
    is_over = 1
}

ltl ends { <> is_over }
