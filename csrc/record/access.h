/* How to read the files of a file system: mapped where that is safe and fast, else by pread.
 *
 * A map of a file on a network turns every lost connection, expired handle or failed server into a
 * signal in the middle of a copy, waits for it where nothing can interrupt, and fetches page by
 * page; a read gives an error, and may be large. The same holds for FUSE, whose server is a
 * process that can die. Pure but for one statfs; thread-safe. */
#ifndef YDL_RECORD_ACCESS_H
#define YDL_RECORD_ACCESS_H

#include "record/part.h"

/* path: a file or a directory. YDL_ACCESS_PREAD, which works everywhere, where the system does not
 * tell what it is. */
enum ydl_access ydl_access_for(const char *path);

/* The choice alone. type: statfs's f_type. */
enum ydl_access ydl_access_for_type(unsigned long type);

#endif
