------------------------------- MODULE Hapax -------------------------------
(* What the manager's pass and `deliver` do to the messages of one entity, call by call, for a second opinion: the
   explorer of hapax-model runs the shipped code, this says the same in a language of its own. Where one says no, one of
   them is wrong. A task's `pc` is the port call that it waits for; actions and invariants bear the explorer's names. *)
EXTENDS Naturals, Sequences, TLC

CONSTANTS Messages,                                \* 1..n, each sends one message and is queued once
          Silent,                                  \* those of them that send nothing
          Workers,
          Together,                                \* entity and marks are in one store
          Crashes, Unknown, Refused, Duplicates,   \* what may go wrong, how often
          Mutant                                   \* "none", or what is done wrong

VARIABLES row,      \* the entity: its version (0: none), effects in their order, messages that have an outbox entry, and
                    \* those of them whose entry has nothing left to be sent
          marks,    \* the dedup store
          sent,     \* messages whose output has left
          queue,    \* copies of each message that wait
          tasks,    \* what each worker is doing
          left,     \* faults that may still come
          history,  \* every effect that was ever committed
          acked     \* messages that were acknowledged
vars == <<row, marks, sent, queue, tasks, left, history, acked>>

Sweeper == 0
Idle == [pc |-> "idle"]
Set(s) == {s[i] : i \in DOMAIN s}
Without(s, gone) == SelectSeq(s, LAMBDA m : m \notin gone)
Quiet == (\A w \in Workers : tasks[w] = Idle) /\ (\A m \in Messages : queue[m] = 0)

(* A pass over message `m`, or over the entries `todo`; `tried`: causes that have had their second try. *)
Pass(m, todo, tried) ==
  [pc |-> IF Mutant = "check_before_load" THEN "contains" ELSE "load", m |-> m, todo |-> todo, tried |-> tried,
   seen |-> {}, version |-> 0, effects |-> <<>>, outbox |-> <<>>, empty |-> {}, fresh |-> FALSE, helped |-> FALSE,
   done |-> {}, note |-> FALSE, unsent |-> FALSE, again |-> 0, ack |-> FALSE]

Init == /\ row = [version |-> 0, effects |-> <<>>, outbox |-> <<>>, empty |-> {}] /\ marks = {} /\ sent = {}
        /\ queue = [m \in Messages |-> 1] /\ tasks = [w \in Workers |-> Idle]
        /\ left = [crashes |-> Crashes, unknown |-> Unknown, refused |-> Refused, duplicates |-> Duplicates]
        /\ history = <<>> /\ acked = {}

(* Once more, or enough of it: what is unsent is left to the sweeper, all else goes back to the queue. Where there may be
   another try there need not be one: `Go` says so. *)
Enough(m, ack) == [Pass(m, <<>>, {}) EXCEPT !.pc = "settle", !.ack = ack]
Fail(t, cause) == CASE t.m = Sweeper     -> Idle
                    [] cause \in t.tried -> Enough(t.m, cause = "unsent")
                    [] OTHER             -> [Pass(t.m, <<>>, t.tried \cup {cause}) EXCEPT !.pc = "either",
                                                                                         !.ack = (cause = "unsent")]

Over(t) == CASE t.unsent      -> Fail(t, "unsent")
             [] t.m = Sweeper -> Idle
             [] OTHER         -> [Pass(t.m, <<>>, {}) EXCEPT !.pc = "settle", !.ack = TRUE]

(* A clean-up that lost: load, and remove what is over, twice at most. *)
Again(t) == IF t.again = 2 THEN Over(t)
            ELSE [Pass(t.m, <<>>, t.tried) EXCEPT !.pc = "load", !.unsent = t.unsent, !.again = t.again + 1]

(* Dispatch what is to be sent, then mark it, then clean up. *)
Onward(t) == LET clean == [t EXCEPT !.outbox = Without(@, t.done)] IN
  CASE t.todo # <<>> /\ Mutant = "mark_before_dispatch" /\ t.done = {}
                                     -> [t EXCEPT !.pc = "insert", !.done = Set(t.todo)]
    [] t.todo # <<>>                 -> [t EXCEPT !.pc = "dispatch"]
    [] t.done = {} /\ ~t.helped      -> Over(t)
    [] Together                      -> [clean EXCEPT !.pc = "finish"]
    [] t.done = {} \/ Mutant \in {"mark_before_dispatch", "clean_before_mark"} -> [clean EXCEPT !.pc = "save"]
    [] OTHER                         -> [clean EXCEPT !.pc = "insert"]

ToSend(t, entries) == LET sends == Without(entries, Silent \cup t.empty) IN
                      [t EXCEPT !.todo = sends, !.done = Set(entries) \ Set(sends)]

(* What was loaded, and what is known to be over. *)
Judge(t, known) ==
  LET box == Without(t.outbox, known)  d == [t EXCEPT !.outbox = box, !.helped = box # t.outbox, !.seen = {}] IN
  CASE t.again > 0    -> IF d.helped THEN Onward(d) ELSE Over(d)
    [] t.m = Sweeper  -> Onward(ToSend(d, SelectSeq(box, LAMBDA e : e \in Set(t.todo))))
    [] t.m \in known  -> Onward(d)
    [] t.m \in Set(box) -> Onward(ToSend(d, <<t.m>>))
    [] OTHER -> [d EXCEPT !.pc = "save", !.fresh = TRUE, !.effects = Append(@, t.m),
                          !.outbox = IF Together /\ t.m \in Silent THEN @ ELSE Append(@, t.m)]

Go(w, t) == IF t.pc = "either" THEN \E next \in {Pass(t.m, <<>>, t.tried), Enough(t.m, t.ack)} :
                                      tasks' = [tasks EXCEPT ![w] = next]
            ELSE tasks' = [tasks EXCEPT ![w] = t]
Spend(fault) == left[fault] > 0 /\ left' = [left EXCEPT ![fault] = @ - 1]
Back(m) == queue' = IF m = Sweeper THEN queue ELSE [queue EXCEPT ![m] = @ + 1]

Load(w) == LET t == tasks[w]  d == [t EXCEPT !.version = row.version, !.effects = row.effects, !.outbox = row.outbox,
                                               !.empty = row.empty] IN
  /\ t.pc = "load" /\ UNCHANGED <<row, marks, sent, queue, history, acked>>
  /\ \/ /\ UNCHANGED left
        /\ Go(w, CASE Together -> Judge(d, marks)
                   [] Mutant = "check_before_load" /\ t.again = 0 -> Judge(d, t.seen)
                   [] OTHER -> [d EXCEPT !.pc = "contains"])
     \/ Spend("refused") /\ Go(w, IF t.again > 0 THEN Over(t) ELSE Fail(t, "unavailable"))

Contains(w) == LET t == tasks[w] IN
  /\ t.pc = "contains" /\ UNCHANGED <<row, marks, sent, queue, history, acked>>
  /\ \/ /\ UNCHANGED left
        /\ Go(w, IF Mutant = "check_before_load" /\ t.again = 0 THEN [t EXCEPT !.pc = "load", !.seen = marks]
                 ELSE Judge(t, marks))
     \/ Spend("refused") /\ Go(w, IF t.again > 0 THEN Over(t) ELSE Fail(t, "unavailable"))

(* A write goes well, is done and not confirmed, or is refused. *)
Write(w, done, well, unknown, refused) == \/ done /\ UNCHANGED left /\ Go(w, well)
                                          \/ done /\ Spend("unknown") /\ Go(w, unknown)
                                          \/ UNCHANGED <<row, marks, history>> /\ Spend("refused") /\ Go(w, refused)

Current(t) == row.version = t.version \/ Mutant = "no_version_check"
Stored(t) == row' = [version |-> row.version + 1, effects |-> t.effects, outbox |-> t.outbox,
                     empty |-> t.empty \cap Set(t.outbox)]

(* The save of what was handled; and, where there are two stores, that of a clean-up. *)
Save(w) == LET t == tasks[w]  rides == IF t.fresh /\ Together /\ t.m \in Silent THEN {t.m} ELSE {}
               saved == [t EXCEPT !.version = row.version + 1, !.fresh = FALSE, !.helped = FALSE] IN
  /\ t.pc = "save" /\ ~t.note /\ UNCHANGED <<sent, queue, acked>>
  /\ Write(w, IF Current(t) THEN /\ Stored(t) /\ marks' = marks \cup rides
                                 /\ history' = IF t.fresh THEN Append(history, t.m) ELSE history
              ELSE UNCHANGED <<row, marks, history>>,
           CASE ~Current(t) -> IF t.fresh THEN Fail(t, "conflict") ELSE Again(t)
             [] t.fresh     -> Onward(IF rides = {} THEN ToSend(saved, <<t.m>>) ELSE saved)
             [] Mutant = "clean_before_mark" /\ t.done # {} -> [t EXCEPT !.pc = "insert"]
             [] OTHER       -> Over(t),
           IF t.fresh THEN Fail(t, "conflict") ELSE Again(t),
           IF t.fresh THEN Fail(t, "unavailable") ELSE Again(t))

Dispatch(w) == LET t == tasks[w]  next == [t EXCEPT !.todo = Tail(@)] IN
  /\ t.pc = "dispatch" /\ UNCHANGED <<row, marks, queue, history, acked>>
  /\ \/ /\ sent' = sent \cup {Head(t.todo)}
        /\ \/ UNCHANGED left /\ Go(w, Onward([next EXCEPT !.done = @ \cup {Head(t.todo)}]))
           \/ Spend("unknown") /\ Go(w, Onward([next EXCEPT !.unsent = TRUE]))
     \/ UNCHANGED sent /\ Spend("refused") /\ Go(w, Onward([next EXCEPT !.unsent = TRUE]))

(* What was sent and could not be marked is noted, if anything is to be noted, whatever becomes of it: it is not sent
   again. The entries stay, in the order of their commits. *)
Unmarked(t) == LET back == SelectSeq(t.effects, LAMBDA m : m \in Set(t.outbox) \cup t.done)
                   empty == t.empty \cup (IF Mutant = "note_what_is_unsent" THEN Set(back) ELSE t.done) IN
  CASE t.done = {}                           -> Over(t)
    [] t.done \subseteq (Silent \cup t.empty) -> Fail(t, "unsent")
    [] OTHER -> [t EXCEPT !.pc = "save", !.note = TRUE, !.outbox = back, !.empty = empty \ Silent]
Note(w) == LET t == tasks[w] IN
  /\ t.pc = "save" /\ t.note /\ UNCHANGED <<sent, queue, acked>>
  /\ Write(w, UNCHANGED <<marks, history>> /\ IF Current(t) THEN Stored(t) ELSE UNCHANGED row,
           Fail(t, "unsent"), Fail(t, "unsent"), Fail(t, "unsent"))

(* Any part of the marks is made, and neither confirmed nor followed by a clean-up. *)
Partly(w) == LET t == tasks[w] IN /\ Spend("unknown") /\ UNCHANGED <<row, history>> /\ Go(w, Unmarked(t))
                                  /\ \E part \in SUBSET t.done \ {{}} : marks' = marks \cup part

(* Marks, and cleans up if the version still is what it was. *)
Finish(w) == LET t == tasks[w] IN
  /\ t.pc = "finish" /\ UNCHANGED <<sent, queue, acked>>
  /\ \/ Write(w, marks' = marks \cup t.done /\ UNCHANGED history /\ IF Current(t) THEN Stored(t) ELSE UNCHANGED row,
              IF Current(t) THEN Over(t) ELSE Again(t), Unmarked(t), Unmarked(t))
     \/ Partly(w)

Insert(w) == LET t == tasks[w]  cleaned == Mutant = "clean_before_mark" IN
  /\ t.pc = "insert" /\ UNCHANGED <<sent, queue, acked>>
  /\ \/ Write(w, marks' = marks \cup t.done /\ UNCHANGED <<row, history>>,
              IF cleaned THEN Over(t) ELSE [t EXCEPT !.pc = IF t.todo # <<>> THEN "dispatch" ELSE "save"],
              Unmarked(t), Unmarked(t))
     \/ Partly(w)

Settle(w) == LET t == tasks[w] IN
  /\ t.pc = "settle" /\ UNCHANGED <<row, marks, sent, history>> /\ Go(w, Idle)
  /\ \/ /\ UNCHANGED left \/ Spend("unknown")
        /\ IF t.ack THEN acked' = acked \cup {t.m} /\ UNCHANGED queue ELSE Back(t.m) /\ UNCHANGED acked
     \/ Spend("refused") /\ Back(t.m) /\ UNCHANGED acked

Begin(w) == \E m \in Messages :
  /\ tasks[w] = Idle /\ queue[m] > 0 /\ queue' = [queue EXCEPT ![m] = @ - 1] /\ Go(w, Pass(m, <<>>, {}))
  /\ UNCHANGED <<row, marks, sent, left, history, acked>>

Sweep(w) == /\ Quiet /\ row.outbox # <<>> /\ Mutant # "no_sweeper"
            /\ Go(w, [Pass(Sweeper, row.outbox, {}) EXCEPT !.pc = "load"])
            /\ UNCHANGED <<row, marks, sent, queue, left, history, acked>>

Crash(w) == /\ tasks[w] # Idle /\ Spend("crashes") /\ Go(w, Idle) /\ Back(tasks[w].m)
            /\ UNCHANGED <<row, marks, sent, history, acked>>

Duplicate == /\ Spend("duplicates") /\ \E m \in Messages : Back(m)
             /\ UNCHANGED <<row, marks, sent, tasks, history, acked>>

Work == \E w \in Workers : \/ Begin(w) \/ Sweep(w) \/ Load(w) \/ Contains(w) \/ Save(w) \/ Dispatch(w) \/ Finish(w)
                           \/ Insert(w) \/ Note(w) \/ Settle(w)
Next == Work \/ Duplicate \/ \E w \in Workers : Crash(w)
Spec == Init /\ [][Next]_vars /\ WF_vars(Work)

effect_at_most_once  == \A i, j \in DOMAIN history : history[i] = history[j] => i = j
no_lost_update       == row.effects = history
no_ghost_output      == sent \subseteq Set(history)
marked_only_when_sent == marks \subseteq sent \cup Silent
ack_implies_done     == \A m \in acked : m \in Set(history) /\ m \in sent \cup Set(row.outbox) \cup Silent
no_gap               == \A m \in Set(history) : m \in marks \cup Set(row.outbox)
AtRest               == Quiet /\ ~ENABLED Work
no_garbage_at_rest   == AtRest => row.outbox = <<>>
complete_at_rest     == AtRest => Set(history) = Messages /\ marks = Messages /\ sent = Messages \ Silent
every_run_ends       == <>[](Quiet /\ row.outbox = <<>>)
=============================================================================
