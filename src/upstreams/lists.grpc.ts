import { ListServiceService } from "../gen/avion/lists.js";
import type { IdPage } from "../kernel/paging.js";
import { checkPage } from "./answers.js";
import { type createCallUpstream, isUnimplemented } from "./call.grpc.js";

interface FindRequest {
  readonly member: string;
  readonly owners?: readonly string[];
  readonly token: string;
  readonly size: number;
}

export function listsOn(call: ReturnType<typeof createCallUpstream>["once"]) {
  const { findLists, getListReader } = ListServiceService;
  return {
    /** Reads one page of the lists with a member. A users service without lists has none. */
    findLists: async ({ member, owners = [], token, size }: FindRequest): Promise<IdPage> => {
      const request = { member_id: member, owner_ids: [...owners], page_size: size, page_token: token };
      const none = { list_ids: [], next_page_token: "" };
      const { list_ids: ids, next_page_token: next } = await call(findLists, request, { subject: member }).catch(
        (error: unknown) => {
          if (isUnimplemented(error)) return none;
          throw error;
        },
      );
      checkPage("FindLists", token, { length: ids.length, next });
      return { ids, next };
    },
    /** An empty user asks about the list of anybody. The deadline is in ms since the epoch. @throws AppError; `isNotFound` tells that the user has no such list */
    listReader: (user_id: string, list_id: string, deadline: number) =>
      call(getListReader, { user_id, list_id }, { subject: user_id || list_id, deadline }),
  };
}
