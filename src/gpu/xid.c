/* SPDX-License-Identifier: MIT */
/*
 * The parser of Xid lines, by a cursor that never passes the end of the text.
 *
 * Runs in: ward and command line. Never looks at a byte that is not inside the text that it was given,
 * and never at one twice in a way that could grow with the square of its length.
 *
 *	NVRM: Xid (PCI:0000:00:06): 43, pid=648, name=c, channel 0x0000000a
 *	NVRM: Xid (PCI:0000:00:06): 13, Graphics SM Warp Exception on (GPC 1, TPC 4, SM 0): ...
 *	NVRM: Xid (PCI:0000:C1:00 GPU-I:05): 31, pid='<unknown>', name=<unknown>, Ch 0000000b
 *
 * Trust: a process can name itself almost anything, but with 15 bytes it cannot write the head of a
 * report, and its pid stands before its name. So a name can look odd, not lead to a wrong pid.
 * Read next: xid.h.
 */
#include "gpu/xid.h"

#include <errno.h>
#include <string.h>

#define PID_GREATEST 4194304U /* the kernel's PID_MAX_LIMIT */
#define NAME_LONGEST 15U      /* TASK_COMM_LEN without its zero byte */

struct cursor {
	const char *at;
	const char *end;
};

static size_t left(const struct cursor *c)
{
	return (size_t)(c->end - c->at);
}

static bool take(struct cursor *c, const char *word)
{
	size_t length = strlen(word);

	if (left(c) < length || memcmp(c->at, word, length) != 0)
		return false;
	c->at += length;
	return true;
}

static int digit(char byte, unsigned int base)
{
	int value = -1;

	if (byte >= '0' && byte <= '9')
		value = byte - '0';
	else if (byte >= 'a' && byte <= 'f')
		value = byte - 'a' + 10;
	else if (byte >= 'A' && byte <= 'F')
		value = byte - 'A' + 10;
	return value < (int)base ? value : -1;
}

/* Takes a number of at most LIMIT. Nothing is taken where there is no digit or too many. */
static bool take_number(struct cursor *c, unsigned int base, uint64_t limit, uint64_t *ret_value)
{
	const char *at = c->at;
	uint64_t value = 0;

	for (; at < c->end && digit(*at, base) >= 0; at++) {
		uint64_t next = (uint64_t)digit(*at, base);

		if (value > (limit - next) / base)
			return false;
		value = value * base + next;
	}
	if (at == c->at)
		return false;
	c->at = at;
	*ret_value = value;
	return true;
}

/* A number of which another byte follows, so that it is known to be whole. */
static bool take_whole(struct cursor *c, unsigned int base, uint64_t limit, uint64_t *ret_value)
{
	struct cursor probe = *c;

	if (!take_number(&probe, base, limit, ret_value) || left(&probe) == 0)
		return false;
	*c = probe;
	return true;
}

int kmsg_parse(const char *record, size_t bytes, struct kmsg_record *ret_record)
{
	struct cursor c = {record, record + bytes};
	uint64_t prefix;
	uint64_t sequence;
	uint64_t micros;
	const char *semicolon;
	const char *newline;

	if (!take_number(&c, 10, UINT32_MAX, &prefix) || !take(&c, ",") ||
	    !take_number(&c, 10, UINT64_MAX - 1, &sequence) || !take(&c, ",") ||
	    !take_number(&c, 10, UINT64_MAX / 1000 - 1, &micros) || !take(&c, ","))
		return -EBADMSG;
	semicolon = memchr(c.at, ';', left(&c));
	if (!semicolon)
		return -EBADMSG;
	c.at = semicolon + 1;
	newline = memchr(c.at, '\n', left(&c));
	*ret_record = (struct kmsg_record){
		.level = (uint32_t)prefix & 7,
		.facility = (uint32_t)prefix >> 3,
		.sequence = sequence,
		.at_ns = micros * 1000,
		.text = c.at,
		.text_bytes = newline ? (size_t)(newline - c.at) : left(&c),
	};
	return 0;
}

size_t xid_pci_parse(const char *text, size_t bytes, struct xid_pci *ret_pci)
{
	struct cursor c = {text, text + bytes};
	uint64_t domain;
	uint64_t bus;
	uint64_t device;
	uint64_t function;

	if (!take_number(&c, 16, UINT32_MAX, &domain) || !take(&c, ":") ||
	    !take_number(&c, 16, UINT8_MAX, &bus) || !take(&c, ":") ||
	    !take_number(&c, 16, 31, &device))
		return 0;
	if (take(&c, "."))
		(void)take_number(&c, 16, 7, &function);
	*ret_pci = (struct xid_pci){(uint32_t)domain, (uint8_t)bus, (uint8_t)device};
	return (size_t)(c.at - text);
}

bool xid_pci_equal(const struct xid_pci *a, const struct xid_pci *b)
{
	return a->domain == b->domain && a->bus == b->bus && a->device == b->device;
}

/* The kernel writes a byte that is not printable as \xNN; what is left of such is shown as '?'. */
static void copy_text(char *to, size_t capacity, const char *from, size_t bytes)
{
	struct cursor c = {from, from + bytes};
	size_t used = 0;

	while (left(&c) > 0 && used + 1 < capacity) {
		char byte = *c.at;
		bool escaped = left(&c) >= 4 && byte == '\\' && c.at[1] == 'x' &&
			       digit(c.at[2], 16) >= 0 && digit(c.at[3], 16) >= 0;

		if (escaped)
			byte = (char)(digit(c.at[2], 16) * 16 + digit(c.at[3], 16));
		c.at += escaped ? 4 : 1;
		to[used++] = byte >= ' ' && byte != 127 ? byte : '?';
	}
	to[used] = '\0';
}

/* "pid=648", "pid='648'", "pid='<unknown>'" or "pid=<unknown>", with what separates it from the next. */
static void take_pid(struct cursor *c, struct xid_line *line)
{
	bool quoted;
	uint64_t pid;

	if (!take(c, "pid="))
		return;
	quoted = take(c, "'") || take(c, "\"");
	if (take_whole(c, 10, PID_GREATEST, &pid)) {
		bool closed = *c->at == ',' || *c->at == '\'' || *c->at == '"' || *c->at == ' ';

		if (pid > 0 && closed) {
			line->pid = (int32_t)pid;
			line->have |= XID_HAVE_PID;
		}
	} else if (!take(c, "<unknown>")) {
		const char *comma = memchr(c->at, ',', left(c));

		c->at = comma ? comma : c->end;
	}
	if (quoted && !take(c, "'"))
		(void)take(c, "\"");
	(void)take(c, ",");
	while (take(c, " "))
		;
	if (left(c) == 0)
		line->have |= XID_CUT;
}

/* What is known to follow a name. */
static bool is_tail(struct cursor c)
{
	return take(&c, ", channel 0x") || take(&c, ", Channel") || take(&c, ", Ch ") ||
	       take(&c, ", Graphics ") || take(&c, ", intr ") || take(&c, ", Class Error") ||
	       take(&c, ", engmask ") || take(&c, ", GPU ");
}

/*
 * How long the name at C is. A name may hold commas, so the last place within its greatest length
 * where a known tail follows is its end; failing that the first comma; failing that it must be short.
 */
static size_t name_length(const struct cursor *c)
{
	size_t longest = left(c) < NAME_LONGEST ? left(c) : NAME_LONGEST;
	size_t comma = SIZE_MAX;

	for (size_t i = longest + 1; i-- > 0;) {
		struct cursor tail = {c->at + i, c->end};

		if (is_tail(tail))
			return i;
		if (take(&tail, ", "))
			comma = i;
	}
	return comma != SIZE_MAX ? comma : longest;
}

static void take_name(struct cursor *c, struct xid_line *line)
{
	struct cursor probe = *c;
	size_t length;

	if (!take(&probe, "name="))
		return;
	c->at = probe.at;
	if (take(c, "<unknown>") || take(c, "'<unknown>'")) {
		(void)take(c, ", ");
		return;
	}
	/* The kernel's escapes make a name longer in the log than in the process. */
	length = memchr(c->at, '\\', left(c) < NAME_LONGEST ? left(c) : NAME_LONGEST)
			 ? 0
			 : name_length(c);
	if (length == 0) {
		const char *comma = memchr(c->at, ',', left(c));

		length = comma ? (size_t)(comma - c->at) : left(c);
	}
	if (length >= 2 && c->at[0] == '\'' && c->at[length - 1] == '\'')
		copy_text(line->name, sizeof(line->name), c->at + 1, length - 2);
	else
		copy_text(line->name, sizeof(line->name), c->at, length);
	line->have |= line->name[0] ? XID_HAVE_NAME : 0;
	c->at += length;
	if (left(c) == 0)
		line->have |= XID_CUT;
	(void)take(c, ", ");
}

/* "channel 0x0000000a" or "Ch 0000000b", anywhere in what follows. */
static void find_channel(const struct cursor *c, struct xid_line *line)
{
	for (struct cursor at = *c; left(&at) > 0; at.at++) {
		struct cursor probe = at;
		uint64_t channel;

		if (*at.at != 'c' && *at.at != 'C')
			continue;
		if (!take(&probe, "channel 0x") && !take(&probe, "Channel 0x") &&
		    !take(&probe, "Ch "))
			continue;
		/* Eight digits are whole even at the end of the text. */
		if (left(&probe) < 8 || !take_number(&probe, 16, UINT32_MAX, &channel))
			continue;
		line->channel = (uint32_t)channel;
		line->have |= XID_HAVE_CHANNEL;
		return;
	}
}

/* Takes the head "NVRM: Xid (PCI:0000:00:06): ", up to the number. */
static bool take_head(struct cursor *c, struct xid_line *line)
{
	struct cursor probe = *c;
	const char *close;
	size_t used;

	if (!take(&probe, "NVRM: Xid ("))
		return false;
	(void)take(&probe, "PCI:");
	used = xid_pci_parse(probe.at, left(&probe), &line->pci);
	if (used == 0)
		return false;
	probe.at += used;
	if (left(&probe) > 0 && (*probe.at == ')' || *probe.at == ' '))
		line->have |= XID_HAVE_PCI;
	close = memchr(probe.at, ')', left(&probe));
	c->at = close ? close + 1 : c->end;
	(void)take(c, ":");
	while (take(c, " "))
		;
	return true;
}

/* Where the next report begins in what is left, or the end: mixed lines. */
static const char *next_head(struct cursor c)
{
	while (left(&c) > 0) {
		struct xid_line ignored = {0};
		struct cursor probe;
		const char *n = memchr(c.at, 'N', left(&c));

		if (!n)
			break;
		probe = (struct cursor){n, c.end};
		if (take_head(&probe, &ignored))
			return n;
		c.at = n + 1;
	}
	return c.end;
}

/* Without a number nothing that follows can be relied on, so it stays text. */
static void parse_body(struct cursor *c, struct xid_line *line)
{
	struct cursor probe = *c;
	uint64_t number;

	if (take_number(&probe, 10, UINT32_MAX, &number) && take(&probe, ",")) {
		line->number = (uint32_t)number;
		line->have |= XID_HAVE_NUMBER;
		*c = probe;
		while (take(c, " "))
			;
		take_pid(c, line);
		take_name(c, line);
		find_channel(c, line);
	} else {
		line->have |= XID_CUT;
	}
	copy_text(line->rest, sizeof(line->rest), c->at, left(c));
}

size_t xid_parse(const char *text, size_t bytes, struct xid_line *ret_line)
{
	struct xid_line line = {0};
	struct cursor all = {text, text + bytes};
	struct cursor one;

	all.at = next_head(all);
	if (left(&all) == 0)
		return 0;
	one = all;
	(void)take_head(&one, &line);
	one.end = next_head(one);
	all.at = one.end;
	parse_body(&one, &line);
	*ret_line = line;
	return (size_t)(all.at - text);
}

bool xid_parse_record(const struct kmsg_record *record, size_t *offset, struct xid_line *ret_line)
{
	struct cursor whole = {record->text, record->text + record->text_bytes};
	struct xid_line line;
	size_t used;

	if (!take(&whole, "NVRM:") || *offset >= record->text_bytes)
		return false;
	used = xid_parse(record->text + *offset, record->text_bytes - *offset, &line);
	if (used == 0)
		return false;
	*offset += used;
	line.sequence = record->sequence;
	line.at_ns = record->at_ns;
	line.have |= XID_HAVE_SEQUENCE | XID_HAVE_TIME;
	*ret_line = line;
	return true;
}

enum xid_recovery xid_recovery(const char *rest)
{
	static const struct {
		const char *words;
		enum xid_recovery action;
	} names[] = {
		{"(Drain and Reset)", XID_RECOVERY_DRAIN_AND_RESET},
		{"(Drain P2P)", XID_RECOVERY_DRAIN_P2P},
		{"(Node Reboot Required)", XID_RECOVERY_REBOOT},
		{"(GPU Reset Required)", XID_RECOVERY_RESET},
		{"(None)", XID_RECOVERY_NONE},
	};
	const char *open = strrchr(rest, '('); /* the old action stands first, the new one last */

	for (size_t i = 0; open && i < sizeof(names) / sizeof(names[0]); i++) {
		if (strncmp(open, names[i].words, strlen(names[i].words)) == 0)
			return names[i].action;
	}
	return XID_RECOVERY_UNKNOWN;
}

void xid_join_saw(struct xid_join *join, uint64_t sequence)
{
	if (join->started && sequence > join->next_sequence)
		join->lost += sequence - join->next_sequence;
	join->started = true;
	join->next_sequence = sequence + 1;
}

void xid_join_overrun(struct xid_join *join)
{
	join->overruns++;
}

static struct xid_line *join_find(struct xid_join *join, const struct xid_line *line)
{
	for (size_t i = 0; i < XID_JOIN_MAX; i++) {
		struct xid_line *held = &join->held[i];

		if (held->have && xid_pci_equal(&held->pci, &line->pci))
			return held;
	}
	return NULL;
}

static bool join_hold(struct xid_join *join, const struct xid_line *line)
{
	for (size_t i = 0; i < XID_JOIN_MAX; i++) {
		if (join->held[i].have)
			continue;
		join->held[i] = *line;
		return true;
	}
	return false;
}

/*
 * Only Xid 13 is known to come in several lines, and only with a device there is something to join. The
 * line with the pid can be an Xid 43: so a stack overflow was reported.
 */
static bool joins(const struct xid_line *line)
{
	const uint32_t needs = XID_HAVE_NUMBER | XID_HAVE_PCI;

	return (line->have & needs) == needs &&
	       (line->number == 13 || (line->number == 43 && (line->have & XID_HAVE_PID)));
}

bool xid_join_feed(struct xid_join *join, const struct xid_line *line, struct xid_line *ret_event)
{
	struct xid_line *held = joins(line) ? join_find(join, line) : NULL;
	struct xid_line event = *line;

	if (!(line->have & XID_HAVE_PID)) {
		/* A further line of one that is held adds nothing; a first one waits for its pid. */
		if (held || (joins(line) && join_hold(join, line)))
			return false;
	} else if (held) {
		event.have |= held->have & (XID_HAVE_SEQUENCE | XID_HAVE_TIME);
		event.sequence = held->sequence;
		event.at_ns = held->at_ns;
		memcpy(event.rest, held->rest, sizeof(event.rest));
		held->have = 0;
	}
	*ret_event = event;
	return true;
}

bool xid_join_expire(struct xid_join *join, uint64_t now_ns, uint64_t age_ns,
		     struct xid_line *ret_event)
{
	for (size_t i = 0; i < XID_JOIN_MAX; i++) {
		struct xid_line *held = &join->held[i];
		bool late = !(held->have & XID_HAVE_TIME) ||
			    (now_ns > held->at_ns && now_ns - held->at_ns >= age_ns);

		if (!held->have || !late)
			continue;
		*ret_event = *held;
		held->have = 0;
		return true;
	}
	return false;
}
