// The door of the spool: bytes with offsets, kept on disk, read by any number of readers.
// Must not import process/, workspace/, wire/, rpc/ or gRPC.
export { followOutputs, type FollowRequest, type OutputPiece } from "./follow.ts";
export { ProcessSpool, type StreamOffsets } from "./process_spool.ts";
export { type SpoolOwner, SpoolStore, type SpoolStoreOptions } from "./spool_store.ts";
export { type OutputSource, StreamSpool } from "./stream_spool.ts";
