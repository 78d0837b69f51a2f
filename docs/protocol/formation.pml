/* How generations are formed and revoked: the driver, two agents and three workers, with messages
 * that are late, lost and reordered, broken links, and processes that die at any point. README.md
 * beside this file says what is left out; scripts/check_model checks it.
 *
 * One event of one process is one atomic step, as on the loops of the real ones. Nothing here can
 * go on for ever: each step uses up a message, a fault or a stage. So liveness is what holds where
 * nothing is left to do (Watch), and scripts/check_model proves that there are no cycles.
 *
 * Bounds and guards are macros. A guard that is switched off (-DMUTANT_...) has to be missed. */

#ifndef FAULTS
#define FAULTS 2 /* In all. */
#endif
#ifndef CRASHES
#define CRASHES 2 /* Workers that die by themselves. */
#endif
#ifndef BREAKS
#define BREAKS 1 /* Links between workers that break while both ends live. */
#endif
#ifndef CUTS
#define CUTS 1 /* Streams between the driver and an agent that break. */
#endif
#ifndef SLOW
#define SLOW 0 /* Formations that take longer than 5 s for no reason. */
#endif
#ifndef LATE
#define LATE 1 /* Workers that may miss the start timeout and come as newcomers. */
#endif
#ifndef STREAM_TOO
#define STREAM_TOO 1 /* Revocations that the page's connection does not take; orders replaced. */
#endif
#ifndef EARLY
#define EARLY 3 /* Set of workers that are warm from the start; the others arrive at any time. */
#endif
#ifndef MIN_NP
#define MIN_NP 1
#endif
#ifndef HOST
#define HOST(w) ((w) / 2) /* Two workers on the first host, one on the second. */
#endif

#define WORKERS 3
#define AGENTS 2
#define GENERATIONS 8 /* More than the faults can cause: Form asserts it. */
#define BIT(w) (1 << (w))
#define ALL 7
#define COUNT(set) (((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))
#define ON(a) ((HOST(0) == (a)) | ((HOST(1) == (a)) << 1) | ((HOST(2) == (a)) << 2))
#define HOSTS_OF(agents) ((((agents) & 1) * ON(0)) | ((((agents) >> 1) & 1) * ON(1)))
#define FIRST(set) ((set) & 1 -> 0 : ((set) & 2 -> 1 : 2))

mtype = {
  FORM, REVOKE, ASK, FENCE, NOTIFY, STOP, /* Driver to agent. */
  LOST, ANSWER_ALIVE, ANSWER_DEAD,        /* Agent to driver. */
  WARM, FORMED, LEFT, PEER_LOST,          /* Worker to driver, relayed by the agent. */
  WORLD, REVOKED, PENDING,                /* Agent to worker, on the stream. */
  GATHERING, RUNNING, ASKING, HOLDING, ENDED
};

/* ---- the wires. An agent relays what its workers report and keeps nothing of it, so a worker's
 * reports have a wire of their own. They may be overtaken by what the agent itself says. */
chan orders[AGENTS] = [6] of {mtype, byte, byte};  /* Kind, generation, worker. */
chan news[AGENTS] = [4] of {mtype, byte, byte};    /* Kind, generation, worker. */
chan reports[WORKERS] = [4] of {mtype, byte, byte}; /* Kind, generation, suspect. */
#define STREAMED 2 /* Orders about generations that are on their way at a time. */
chan stream[WORKERS] = [STREAMED + 2] of {mtype, byte};
#define PAGE_MESSAGES 3
chan page[WORKERS] = [PAGE_MESSAGES] of {byte}; /* The page's connection: this generation is over. */

/* ---- the network. A stream that is cut delivers nothing; when it is resumed, what the other side
 * has not got is sent again (launcher/session/replay_queue.h): nothing is lost. */
byte cut;        /* Set of agents. */
byte agents_gone; /* Their lease is over: they have ended all their workers, then themselves. */
byte faults = FAULTS;
byte crashes = CRASHES;
byte breaks = BREAKS;
byte cuts = CUTS;
byte slow = SLOW;

/* ---- worlds. Written once each; messages say only the number. */
byte forgotten; /* Up to this generation nobody needs what follows. */
byte members[GENERATIONS];   /* By the driver. */
byte announced[GENERATIONS]; /* What has come, or will, to rank 0: it stays in the socket. */
byte broken[GENERATIONS];    /* The two ends of a broken link. */
bit tabled[GENERATIONS];     /* Rank 0 has sent the table of addresses. */
byte agreed;                 /* The newest generation that is to be left at a commit. */
byte committed;              /* The newest generation in which all have committed. */

/* ---- workers */
byte joined = EARLY; /* Sets. */
byte dead;
byte newest[WORKERS];   /* Engine::newest_ */
byte work[WORKERS];     /* The generation of Engine::session_; 0: none. */
byte reported[WORKERS]; /* Peers that were reported in this generation. */
byte forming;           /* Engine::formation_ */
byte pending;           /* Were told that the world is to change. */
byte leaving;           /* Have left at a commit and wait. */
byte told[WORKERS];     /* For Watch: the newest generation that it was told is over. */

/* ---- agents */
byte placed[WORKERS]; /* Agent::Worker::generation */
byte tells_over;      /* Agent::Worker::revoked */
byte noticed;         /* Deaths that the agent has dealt with. */
byte kill_ordered;

/* ---- the driver */
mtype phase = GATHERING;
byte gen;           /* Membership::world_.generation */
byte warm = EARLY;  /* Stages of workers, as sets; who is in none of them is arriving. */
byte members_alive;
byte lost;
byte formed;
byte left;
byte asked;
byte unanswered;
byte silent;    /* Agents that are suspected. */
bit window;     /* A loss: others may follow within 3 ms. */
bit revoked;
bit notified;
byte ever_lost; /* For Watch. */

#define ALIVE(w) (!(dead & BIT(w)))
#define IN(set, w) (((set) & BIT(w)) != 0)
#define ARRIVING (ALL & ~(warm | members_alive | lost))
/* Membership::Select: members, and warm workers that can be reached. */
#define SELECTED (members_alive | (warm & ~HOSTS_OF(silent)))
#define OPEN (members_alive & ~left)

/* A collective needs every member of its generation, at work and alive, and whole links. */
#define WORKS(w, g) (!IN(members[g], w) || (work[w] == (g) && ALIVE(w) && !IN(leaving, w)))
#define CAN_COMMIT(g) ((g) != 0 && broken[g] == 0 && WORKS(0, g) && WORKS(1, g) && WORKS(2, g))

/* Where the job may rest: it has ended, or all who live work in one world. */
#define RESTS(w) \
  ((ALIVE(w) && IN(members_alive, w) && work[w] == gen) || (!ALIVE(w) && IN(lost, w)))
#define SETTLED                                                               \
  ((phase == ENDED && dead == ALL) ||                                         \
   (phase == RUNNING && !window && CAN_COMMIT(gen) && RESTS(0) && RESTS(1) && \
    RESTS(2)))

/* ============================================================ workers
 * worker/engine_orders.cc, worker/formation.cc */

inline EndGenerations() { /* Engine::EndGenerations */
  work[w] = 0;
  forming = forming & ~BIT(w);
  pending = pending & ~BIT(w);
  leaving = leaving & ~BIT(w);
  reported[w] = 0;
}

inline OnWorld() { /* Engine::OnWorld, Engine::Form */
  if
#ifdef MUTANT_WORKER_TAKES_OLDER_WORLDS
  :: true ->
#else
  :: g > newest[w] ->
#endif
     told[w] = (told[w] > g - 1 -> told[w] : g - 1);
#ifndef MUTANT_WORLD_DOES_NOT_REVOKE
     EndGenerations();
#endif
     newest[w] = g;
     forming = forming | BIT(w);
     announced[g] = announced[g] | BIT(w);
     Forget()
  :: else
  fi
}

inline OnRevoked() { /* Engine::OnRevoked */
  told[w] = (told[w] > g -> told[w] : g);
  if
#ifdef MUTANT_REVOCATION_OF_THE_UNKNOWN_IS_IGNORED
  :: g == newest[w] ->
#else
  :: g >= newest[w] ->
#endif
     newest[w] = g;
     EndGenerations();
     Forget()
  :: else
  fi
}

/* A peer that this worker's links show to have left g. */
#define GONE(p, g)                                       \
  (!ALIVE(p) || newest[p] > (g) ||                       \
   (newest[p] == (g) && work[p] != (g) && !IN(forming, p)))
#define MISSES(w, p, g)                                                  \
  ((p) != (w) && IN(members[g], p) && !IN(reported[w], p) &&             \
   (GONE(p, g) || broken[g] == (BIT(w) | BIT(p))))
#define IS_IN(w) (ALIVE(w) && !IN(leaving, w) && (work[w] == newest[w] || IN(forming, w)) && newest[w])

/* Not of the protocol: what nobody can come to any more makes no difference between states. */
inline Forget() {
  do
  :: forgotten + 1 < newest[0] + 99 * IN(dead, 0) && forgotten + 1 < newest[1] + 99 * IN(dead, 1) &&
     forgotten + 1 < newest[2] + 99 * IN(dead, 2) && forgotten + 1 < gen ->
     forgotten++;
     announced[forgotten] = 0;
     broken[forgotten] = 0;
     tabled[forgotten] = 0
  :: else -> break
  od
}

inline Die(x) { /* What it was sent is gone; what it has sent may be. */
  dead = dead | BIT(x);
  work[x] = 0;
  reported[x] = 0;
  forming = forming & ~BIT(x);
  pending = pending & ~BIT(x);
  leaving = leaving & ~BIT(x);
  do
  :: nempty(stream[x]) -> stream[x]?_, _
  :: nempty(page[x]) -> page[x]?_
  :: empty(stream[x]) && empty(page[x]) -> break
  od
}

/* Once the driver has given it up, nothing that it says counts (Membership::Find, IsMember). */
inline Report(kind, g, p) {
  if
  :: !IN(lost, w) -> reports[w]!kind(g, p)
  :: else
  fi
}

inline LoseReports(x) {
  do
  :: nempty(reports[x]) -> reports[x]?_, _, _
  :: empty(reports[x]) -> break
  od
}

#define MAY_CRASH (ALIVE(w) && crashes > 0 && faults > 0)
#define REPORT_BROKEN(p)                                                       \
  IS_IN(w) && MISSES(w, p, newest[w]) && nfull(reports[w]) ->                  \
  reported[w] = reported[w] | BIT(p);                                          \
  Report(PEER_LOST, newest[w], p)

proctype Worker(byte w) {
  byte g;
end:
  do
  :: d_step { !IN(dead | joined, w) -> joined = joined | BIT(w); Report(WARM, 0, 0) }

  /* Its agent's orders, by two ways that do not wait for each other. */
  :: d_step { nempty(stream[w]) ->
       if
       :: stream[w]?WORLD(g) -> OnWorld()
       :: stream[w]?REVOKED(g) -> OnRevoked()
       :: stream[w]?PENDING(g) ->
          if
          :: g == newest[w] && (work[w] == g || IN(forming, w)) -> pending = pending | BIT(w)
          :: else
          fi
       fi;
       g = 0
     }
  :: d_step { nempty(page[w]) -> page[w]?g; OnRevoked(); g = 0 }

  /* Formation::CheckAnnounced, OnTable, CheckComplete: rank 0 first. */
  :: d_step { IN(forming, w) && nfull(reports[w]) &&
              (FIRST(members[newest[w]]) == w -> announced[newest[w]] == members[newest[w]]
                                              : tabled[newest[w]]) ->
       tabled[newest[w]] = 1;
       forming = forming & ~BIT(w);
       work[w] = newest[w];
       if
       :: SLOW > 0 -> Report(FORMED, newest[w], 0) /* Else nobody looks at it. */
       :: else
       fi
     }

  /* Engine::ReportBroken: evidence; the worker waits for orders afterwards. */
  :: d_step { REPORT_BROKEN(0) }
  :: d_step { REPORT_BROKEN(1) }
  :: d_step { REPORT_BROKEN(2) }

  /* The user's loop (worker/elastic_run.cc): all commit, and leave where they have agreed to. */
  :: d_step { work[w] > committed && FIRST(members[work[w]]) == w && CAN_COMMIT(work[w]) ->
       committed = work[w]
     }
  :: d_step { IN(pending, w) && work[w] > agreed && CAN_COMMIT(work[w]) -> agreed = work[w] }
  :: d_step { work[w] != 0 && work[w] == agreed && !IN(leaving, w) && nfull(reports[w]) ->
       leaving = leaving | BIT(w);
       Report(LEFT, work[w], 0)
     }

  /* It dies, and what it has reported arrives or does not. */
  :: d_step { MAY_CRASH -> Die(w); crashes--; faults-- }
  :: d_step { MAY_CRASH && nempty(reports[w]) -> Die(w); LoseReports(w); crashes--; faults-- }
  od
}

/* ============================================================ agents
 * launcher/agent/agent.cc, agent_workers.cc */

/* WorkerService's queue keeps only the newest order about generations, of those that are not on
 * their way yet (order_queue.cc). */
inline TellGeneration(x, kind, g) {
  do
  :: len(stream[x]) > (replaces -> 0 : STREAMED - 1) -> stream[x]?_, _
  :: else -> break
  od;
  stream[x]!kind(g)
}

inline TellRevoked(g) { /* Agent::TellRevoked: over the page's connection if that takes it. */
  x = 0;
  do
  :: x < WORKERS ->
     if
     :: HOST(x) == a && ALIVE(x) && placed[x] == g && !IN(tells_over, x) ->
        tells_over = tells_over | BIT(x);
        if
        :: by_page && len(page[x]) < PAGE_MESSAGES -> page[x]!g
        :: else -> TellGeneration(x, REVOKED, g)
        fi
     :: else
     fi;
     x++
  :: x == WORKERS -> break
  od
}

inline OnFormWorld(g) { /* Agent::Perform(FormWorld), Agent::TellWorld */
  x = 0;
  do
  :: x < WORKERS ->
     if
     :: HOST(x) == a && IN(members[g], x) && !IN(kill_ordered, x) ->
        placed[x] = g;
        tells_over = tells_over & ~BIT(x);
        if
        :: ALIVE(x) -> TellGeneration(x, WORLD, g)
        :: else
        fi
     :: else
     fi;
     x++
  :: x == WORKERS -> break
  od
}

inline OnNotify(g) {
  x = 0;
  do
  :: x < WORKERS ->
     if
     :: HOST(x) == a && ALIVE(x) && placed[x] == g -> stream[x]!PENDING(g)
     :: else
     fi;
     x++
  :: x == WORKERS -> break
  od
}

inline Kill(x) {
  kill_ordered = kill_ordered | BIT(x);
  if
  :: ALIVE(x) -> Die(x); LoseReports(x)
  :: else
  fi
}

/* What the network and other threads decide for the next step of an agent. */
#define QUEUED(x) (HOST(x) == a && nempty(stream[x]))
inline Draw() {
  if
  :: by_page = true
  :: STREAM_TOO -> by_page = false
  fi;
  if
  :: replaces = false
  :: STREAM_TOO && (QUEUED(0) || QUEUED(1) || QUEUED(2)) -> replaces = true
  fi
}

proctype Agent(byte a) {
  byte g, w, x;
  bit by_page, replaces;
end:
  do
  :: atomic { !IN(cut | agents_gone, a) && nempty(orders[a]) -> Draw();
     d_step {
       if
       :: orders[a]?FORM(g, _) -> OnFormWorld(g)
       :: orders[a]?REVOKE(g, _) -> TellRevoked(g)
       :: orders[a]?NOTIFY(g, _) -> OnNotify(g)
       :: orders[a]?ASK(g, w) ->
          if
          :: ALIVE(w) -> news[a]!ANSWER_ALIVE(g, w)
          :: else -> news[a]!ANSWER_DEAD(g, w)
          fi
       :: orders[a]?FENCE(_, w) -> Kill(w)
       :: orders[a]?STOP(_, _) ->
          w = 0;
          do
          :: w < WORKERS && HOST(w) == a -> Kill(w); w++
          :: w < WORKERS && HOST(w) != a -> w++
          :: w == WORKERS -> break
          od
       fi;
       g = 0; w = 0; x = 0; by_page = 0; replaces = 0
     } }

  /* Agent::OnOwnerDied, Agent::Lose, Agent::RevokeWithout: the mutex, not the stream, tells. */
  :: atomic { !IN(agents_gone, a) && (ON(a) & dead & ~noticed) != 0 -> Draw();
     d_step {
       w = FIRST(ON(a) & dead & ~noticed);
       noticed = noticed | BIT(w);
       if
       :: IN(kill_ordered, w)
       :: else ->
          g = placed[w];
#ifdef MUTANT_AGENT_REVOKES_ANY_GENERATION
          g = (g > placed[FIRST(ON(a) & ~BIT(w))] -> g : placed[FIRST(ON(a) & ~BIT(w))]);
#endif
          if
          :: g != 0 -> TellRevoked(g)
          :: else
          fi;
          news[a]!LOST(0, w)
       fi;
       g = 0; w = 0; x = 0; by_page = 0; replaces = 0
     } }
  od
}

/* ============================================================ the driver
 * launcher/core/membership_{start,world,loss,growth,silence}.cc */

inline Order(set, kind, g) { /* To each agent with a worker of the set. */
  if
  :: ((set) & ON(0)) != 0 && !IN(agents_gone, 0) -> orders[0]!kind(g, 0)
  :: else
  fi;
  if
  :: ((set) & ON(1)) != 0 && !IN(agents_gone, 1) -> orders[1]!kind(g, 0)
  :: else
  fi
}

inline RevokeWorld() { /* Membership::RevokeWorld */
  if
  :: !revoked -> revoked = 1; Order(members_alive, REVOKE, gen)
  :: else
  fi
}

inline Form() { /* Membership::Form */
#ifdef MUTANT_DRIVER_REUSES_THE_GENERATION
  gen = (gen == 0 -> 1 : gen);
#else
  gen++;
#endif
  assert(gen < GENERATIONS);
  assert(members[gen] == 0); /* One world for each generation. */
  assert((SELECTED & ever_lost) == 0);
  /* Each world has a cause of its own. */
  assert(gen <= 1 + LATE + FAULTS - faults);
  members_alive = SELECTED;
  members[gen] = members_alive;
  warm = warm & ~members_alive;
  formed = 0;
  left = 0;
  revoked = 0;
  notified = 0;
  phase = RUNNING;
  Order(members_alive, FORM, gen)
}

inline NextWorld() { /* Membership::NextWorld, EnterHold */
  window = 0;
  asked = 0;
  unanswered = 0;
  if
  :: COUNT(SELECTED) >= MIN_NP && SELECTED != 0 -> Form()
  :: else ->
     if
     :: phase == RUNNING -> RevokeWorld()
     :: else
     fi;
     phase = HOLDING
  fi
}

inline End() {
  phase = ENDED;
  window = 0; asked = 0; unanswered = 0; notified = 0; silent = 0; formed = 0; left = 0;
  Order(ALL, STOP, 0)
}

inline Lose(x) { /* Membership::Lose */
  if
  :: IN(members_alive, x) && phase != HOLDING -> window = 1
  :: else
  fi;
  members_alive = members_alive & ~BIT(x);
  warm = warm & ~BIT(x);
  left = left & ~BIT(x);
  formed = formed & ~BIT(x);
  unanswered = unanswered & ~BIT(x);
  lost = lost | BIT(x);
  ever_lost = ever_lost | BIT(x);
  LoseReports(x)
}

inline LoseAllOf(set, fence) {
  x = 0;
  do
  :: x < WORKERS ->
     if
     :: IN(set, x) && !IN(lost, x) ->
        Lose(x);
        if
        :: fence -> orders[HOST(x)]!FENCE(0, x)
        :: else
        fi
     :: else
     fi;
     x++
  :: x == WORKERS -> break
  od
}

inline Conclude() { /* Membership::Conclude, Reconsider */
  if
  :: phase == GATHERING && ARRIVING == 0 ->
     if
     :: COUNT(warm) >= MIN_NP && SELECTED != 0 -> NextWorld()
     :: COUNT(warm) < MIN_NP -> End()
     :: else
     fi
  :: phase == RUNNING && window -> RevokeWorld()
  :: phase == RUNNING && !window && OPEN == 0 -> NextWorld()
  :: phase == RUNNING && !window && OPEN != 0 && SELECTED != members_alive && !notified ->
     notified = 1;
     Order(OPEN, NOTIFY, gen)
  :: phase == ASKING && !window && unanswered == 0 -> NextWorld()
  :: phase == HOLDING && COUNT(SELECTED) >= MIN_NP && SELECTED != 0 -> NextWorld()
  :: else
  fi
}

/* Membership::On(PeerLost), Ask */
inline OnPeerLost() {
  if
  :: g == gen && (phase == RUNNING || phase == ASKING) && IN(OPEN, w) && IN(OPEN, p) &&
     !(phase == RUNNING && window) ->
#ifdef MUTANT_PEER_LOST_IS_A_VERDICT
     Lose(p)
#else
     if
     :: phase == RUNNING -> RevokeWorld(); phase = ASKING
     :: else
     fi;
     if
     :: !IN(asked, p) ->
        asked = asked | BIT(p);
        unanswered = unanswered | BIT(p);
        orders[HOST(p)]!ASK(gen, p)
     :: else
     fi
#endif
  :: else
  fi
}

/* Membership::GoesOn: a member that can be reached, so that no other world can be at work. */
#ifdef MUTANT_SILENT_ARE_GIVEN_UP_AT_ONCE
#define GOES_ON true
#else
#define GOES_ON ((members_alive & ~HOSTS_OF(silent)) != 0)
#endif

/* AgentLost: when the lease is over, for then nothing of that host is alive. */
#ifdef MUTANT_DRIVER_DOES_NOT_WAIT_FOR_THE_LEASE
#define GIVEN_UP silent
#else
#define GIVEN_UP agents_gone
#endif

#define HEARD(w) (!IN(cut, HOST(w)) && nempty(reports[w]))
#define NEWS(a) (!IN(cut, a) && nempty(news[a]))

proctype Driver() {
  byte g, p, w, x;
end:
  do
  :: atomic { phase != ENDED && (HEARD(0) || HEARD(1) || HEARD(2)) ->
       if
       :: HEARD(0) -> w = 0
       :: HEARD(1) -> w = 1
       :: HEARD(2) -> w = 2
       fi;
       d_step {
       if
       :: reports[w]?WARM(_, _) ->
          if
          :: !IN(lost, w) -> warm = warm | BIT(w)
          :: else
          fi
       :: reports[w]?FORMED(g, _) ->
          formed = (g == gen && IN(members_alive, w) -> formed | BIT(w) : formed)
       :: reports[w]?LEFT(g, _) ->
          left = (g == gen && IN(members_alive, w) && phase == RUNNING -> left | BIT(w) : left)
       :: reports[w]?PEER_LOST(g, p) -> OnPeerLost()
       fi;
       Conclude();
       g = 0; p = 0; w = 0; x = 0
     } }

  :: atomic { phase != ENDED && (NEWS(0) || NEWS(1)) ->
       if
       :: NEWS(0) -> x = 0
       :: NEWS(1) -> x = 1
       fi;
       d_step {
       if
       :: news[x]?LOST(_, w) ->
          if
          :: !IN(lost, w) -> Lose(w)
          :: else
          fi
       :: news[x]?ANSWER_ALIVE(g, w) ->
          unanswered = (phase == ASKING && g == gen -> unanswered & ~BIT(w) : unanswered)
       :: news[x]?ANSWER_DEAD(g, w) ->
          if
          :: phase == ASKING && g == gen && IN(unanswered, w) -> Lose(w)
          :: else
          fi
       fi;
       Conclude();
       g = 0; w = 0; x = 0
     } }

  /* Membership::OnLossWindow. It may be over at once: how long it is matters to speed alone. */
  :: d_step { window ->
       if
       :: phase == RUNNING -> NextWorld()
       :: else -> window = 0
       fi;
       Conclude()
     }

  /* Membership::OnStartTimeout: who is not there will be a newcomer. */
  :: d_step { phase == GATHERING && COUNT(ARRIVING) <= LATE &&
              COUNT(SELECTED) >= MIN_NP ->
       NextWorld()
     }

  /* Membership::OnElasticTimeout, where nobody can come any more. */
  :: d_step { phase == HOLDING && ARRIVING == 0 && silent == 0 -> End() }

  /* Membership::OnFormedTimeout: a member did not form in time, though nothing is wrong with it. */
  :: d_step { phase == RUNNING && !window && slow > 0 && faults > 0 && (members_alive & ~formed) != 0 &&
              (members_alive & ~formed & HOSTS_OF(silent)) == 0 ->
       slow--;
       faults--;
       if
       :: formed == 0 && COUNT(members_alive) > 1 -> NextWorld()
       :: else -> LoseAllOf(members_alive & ~formed, true)
       fi;
       Conclude();
       x = 0
     }

  /* AgentSuspected, with all that are silent; JudgeSilentAgents; AgentReattached; AgentLost. */
  :: d_step { phase != ENDED && (cut & ~silent & ~agents_gone) != 0 ->
       silent = silent | (cut & ~agents_gone);
       Conclude()
     }
  :: d_step { phase != ENDED && silent != 0 && GOES_ON &&
              (HOSTS_OF(silent) & ~lost) != 0 ->
       LoseAllOf(HOSTS_OF(silent), true);
       Conclude();
       x = 0
     }
  :: d_step { phase != ENDED && (silent & ~cut) != 0 ->
#ifdef MUTANT_LOST_WORKERS_COME_BACK
       warm = warm | (lost & HOSTS_OF(silent & ~cut) & ~dead);
       lost = lost & ~warm;
#endif
       silent = silent & cut;
       Conclude()
     }
  :: d_step { phase != ENDED && ((HOSTS_OF(GIVEN_UP) & ~lost) | (silent & agents_gone)) != 0 ->
       LoseAllOf(HOSTS_OF(GIVEN_UP), false);
       silent = silent & ~agents_gone;
       Conclude();
       x = 0
     }
  od
}

/* ============================================================ faults */

#define MAY_CUT(a) (faults > 0 && cuts > 0 && !IN(cut, a))
#define MAY_BREAK(p, q)                                                          \
  (faults > 0 && breaks > 0 && IS_IN(p) && IS_IN(q) && newest[p] == newest[q] && \
   broken[newest[p]] == 0)

proctype Network() {
  byte a, x;
end:
  do
  :: d_step { MAY_BREAK(0, 1) -> faults--; breaks--; broken[newest[0]] = BIT(0) | BIT(1) }
  :: d_step { MAY_BREAK(0, 2) -> faults--; breaks--; broken[newest[0]] = BIT(0) | BIT(2) }
  :: d_step { MAY_BREAK(1, 2) -> faults--; breaks--; broken[newest[1]] = BIT(1) | BIT(2) }
  :: d_step { MAY_CUT(0) -> faults--; cuts--; cut = cut | BIT(0) }
  :: d_step { MAY_CUT(1) -> faults--; cuts--; cut = cut | BIT(1) }
  :: atomic { (cut & ~agents_gone) != 0 ->
       a = ((cut & ~agents_gone) == 2 -> 1 : 0);
       if
       :: cut = cut & ~BIT(a); /* Resumed. */
#ifdef MUTANT_RESUMED_SESSIONS_FORGET
          do
          :: nempty(orders[a]) -> orders[a]?_, _, _
          :: empty(orders[a]) -> break
          od
#endif
       :: agents_gone = agents_gone | BIT(a); /* The lease is over. */
          do
          :: nempty(orders[a]) -> orders[a]?_, _, _
          :: nempty(news[a]) -> news[a]?_, _, _
          :: empty(orders[a]) && empty(news[a]) -> break
          od;
          x = 0;
          do
          :: x < WORKERS && HOST(x) == a -> Kill(x); x++
          :: x < WORKERS && HOST(x) != a -> x++
          :: x == WORKERS -> break
          od
       fi;
       a = 0; x = 0
     }
  od
}

/* ============================================================ what must hold */

#define OVER(w) (work[w] != 0 && work[w] <= told[w])
#define BACK(w) (CAN_COMMIT(work[w]) && work[w] < committed)
#define APART(v, w) (work[v] != work[w] && CAN_COMMIT(work[v]) && CAN_COMMIT(work[w]))

proctype Watch() {
end:
  do
  :: OVER(0) || OVER(1) || OVER(2) -> assert(false) /* Works in a world that it knows to be over. */
  :: BACK(0) || BACK(1) || BACK(2) -> assert(false) /* An old world works on beside a newer one. */
  :: APART(0, 1) || APART(0, 2) || APART(1, 2) -> assert(false) /* Two worlds are at work. */
  :: timeout -> assert(SETTLED); break
  od
}

init {
  atomic {
    run Driver();
    run Agent(0); run Agent(1);
    run Worker(0); run Worker(1); run Worker(2);
    run Network();
    run Watch()
  }
}

#ifdef LIVENESS
ltl settles { <>[] SETTLED }
#endif
