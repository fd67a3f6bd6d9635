//! The cases as data. Each is an ordinary async function on a [`World`]; this list makes it a test on every backend.

mod account;
mod admit;
mod advance;
mod archive;
mod audit;
mod balance;
mod books;
mod budgets;
mod challenges;
mod concurrency;
mod dead_letters;
mod guard;
mod keys;
mod lapse;
mod lease;
mod outbox;
mod pause;
mod pools;
mod promote;
mod records;
mod reopen;
mod repeats;
mod settle;
mod share;
mod start;
mod stock;
mod sweep;

use std::{fmt, future::Future, pin::Pin};

use crate::World;

/// A behaviour that every store must have.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name of its file.
    pub group: &'static str,
    /// The behaviour, as a sentence.
    pub name: &'static str,
    run: fn(World) -> Running,
}

/// Boxed here, so that the code of a case is generated once, in this crate, however many programs run it.
type Running = Pin<Box<dyn Future<Output = ()>>>;

impl Case {
    pub(crate) async fn run(self, world: World) {
        (self.run)(world).await;
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.group, self.name)
    }
}

macro_rules! cases {
    ($($group:ident: [$($name:ident),+ $(,)?]),+ $(,)?) => {
        &[$($(Case {
            group: stringify!($group),
            name: stringify!($name),
            run: |world| Box::pin($group::$name(world)),
        }),+),+]
    };
}

/// Every case. One that is missing here is dead code, which the compiler reports.
pub const CASES: &[Case] = cases! {
    account: [
        a_gateway_gets_only_what_another_has_given,
        a_gateway_that_shares_nothing_takes_nothing_from_the_others,
        the_slots_of_a_dead_gateway_move_with_its_tasks,
        the_slots_of_released_tasks_are_not_free_until_somebody_has_them,
        a_gateway_that_is_started_again_has_its_share_at_once,
    ],
    guard: [
        work_that_is_no_longer_declared_is_not_paid_for,
        an_ambiguous_attempt_that_is_no_longer_declared_is_written_off,
        only_the_claims_that_lost_their_permission_fail,
        a_paid_task_goes_on_without_its_declaration,
        a_refill_that_is_no_longer_declared_ends,
        nothing_ends_while_the_guard_allows_it,
    ],
    reopen: [
        a_failed_key_is_opened_again_after_its_window,
        a_failure_is_replayed_to_the_last_millisecond_of_its_window,
        a_key_is_opened_again_once_per_failure,
        a_lapsed_key_is_opened_again,
        without_a_window_a_failure_is_replayed_for_a_day,
        a_withdrawal_is_replayed,
        another_challenge_does_not_open_a_key_again,
        a_derived_key_gets_a_claim_of_its_own_at_once,
        a_written_off_attempt_is_never_paid_for_again_by_its_key,
        a_claim_that_lapses_without_a_reply_is_not_opened_again,
        a_failure_after_an_authorised_attempt_is_not_opened_again,
        a_forbidden_claim_is_opened_again_and_a_forbidden_ambiguous_one_is_not,
        a_generation_keeps_to_the_budget,
        a_task_that_is_still_polled_serves_the_next_generation,
        a_task_that_fails_for_two_generations_has_one_dead_letter,
        a_late_token_in_stock_serves_the_next_generation,
        a_late_answer_of_the_last_generation_serves_the_next_one_once,
        a_key_that_is_opened_again_closes_its_dead_letter,
        a_dead_letter_of_others_stays_open_for_them,
        a_revived_claim_that_fails_is_opened_again_by_its_key,
        every_generation_is_explained,
        the_end_of_each_generation_is_announced,
        an_archive_lists_a_claim_once_as_its_last_generation,
        a_claim_that_was_opened_again_outlives_its_first_generation,
    ],
    pause: [
        a_pause_is_kept_and_names_who_made_it,
        pausing_and_resuming_are_in_the_audit_trail_once,
        paused_work_is_not_paid_for_and_goes_on_afterwards,
        a_pause_of_others_stops_nothing,
        a_paused_lost_reply_is_not_followed_by_another_attempt,
        a_lost_reply_that_would_not_be_repeated_does_not_wait,
        a_paid_task_is_harvested_while_paused,
        a_shared_answer_is_bought_for_the_worker_that_is_not_paused,
        undeclared_work_fails_even_while_it_is_paused,
        a_paused_claim_lapses_at_its_deadline,
        nothing_is_ordered_for_a_paused_pool,
        the_number_of_pauses_is_bounded,
    ],
    admit: [
        a_new_claim_opens_one_solve,
        a_name_that_is_taken_is_drawn_again,
        a_claim_that_collects_takes_the_stocked_token_with_the_answer,
        the_budget_of_solves_holds,
        the_budget_of_money_holds,
        a_budget_is_per_worker_and_day,
        a_refused_claim_changes_nothing,
    ],
    start: [
        a_claim_is_started_by_the_decision_that_admits_it,
        a_started_picture_is_leased_without_its_bytes,
        a_claim_of_a_dead_gateway_is_opened_and_waits,
        a_paused_claim_is_opened_and_goes_on_afterwards,
        an_undeclared_claim_is_opened_and_not_paid_for,
        a_start_is_booked_once_and_refused_beyond_the_budget,
        only_a_new_solve_is_started,
        a_start_whose_gateway_dies_is_ambiguous_and_repeated_once,
        a_start_that_is_withheld_waits_in_the_queue_for_any_gateway,
        withholding_a_start_that_was_never_stored_changes_nothing,
        a_start_that_was_accepted_is_not_taken_back,
        a_withheld_start_that_nobody_waits_for_ends_unpaid,
    ],
    books: [
        every_claim_is_in_exactly_one_outcome,
        a_repeated_request_is_no_claim_of_its_own,
        a_claim_is_counted_on_the_day_it_was_made,
        a_token_that_was_given_back_served_nobody,
        a_revived_claim_that_ends_at_once_is_counted,
        the_cost_of_a_pools_token_moves_to_the_claim,
        an_unknown_cost_moves_too,
        a_token_of_a_pool_that_comes_while_a_claim_waits_is_paid_by_the_claim,
        an_unknown_cost_that_becomes_known_is_unknown_no_longer,
        an_attempt_of_unknown_cost_is_counted_once,
        a_joined_claim_is_saved_when_it_is_served,
        a_joined_claim_that_fails_saves_nothing,
        solve_times_have_a_mean_and_percentiles,
    ],
    budgets: [
        what_is_reserved_is_settled_with_the_real_price,
        an_unknown_charge_counts_at_list_price,
        what_was_certainly_not_charged_is_released,
        a_refused_submission_keeps_its_reservation_for_the_retry,
        retries_count_and_stop_at_the_limit,
        a_task_that_cost_nothing_gives_its_money_back,
        an_authorised_attempt_needs_room_of_its_own,
        an_orphan_corrects_what_was_assumed,
        a_month_is_more_than_its_days,
        an_attempt_is_settled_on_the_day_it_was_reserved_for,
        a_token_of_a_pool_counts_for_the_worker_that_gets_it,
        a_budget_of_money_holds_for_tokens_of_a_pool,
        a_token_that_others_left_is_free,
        a_refill_that_a_claim_was_waiting_for_takes_the_place_of_its_own_attempt,
        a_refill_that_comes_after_a_failed_attempt_counts_beside_it,
        a_pool_orders_no_more_than_its_budget,
        the_account_pays_for_everything,
        the_account_is_the_sum_of_its_workers_and_pools,
        callers_of_several_workers_share_the_account,
    ],
    balance: [
        one_gateway_reads_the_balance_per_interval,
        a_new_day_has_a_reading_of_its_own,
    ],
    keys: [
        the_same_key_is_the_same_claim,
        another_challenge_under_the_key_is_refused,
        a_key_is_kept_for_a_day_after_the_end,
        a_named_key_replays_a_failure,
        a_named_key_replays_a_dead_token_as_it_is,
        a_derived_key_is_the_claim_in_flight,
        a_derived_key_lasts_for_its_window,
        a_derived_key_never_outlives_the_token,
        a_derived_key_does_not_replay_a_failure,
        a_replay_that_collects_counts_as_delivered,
        an_own_claim_is_never_replayed,
    ],
    share: [
        a_shared_kind_joins_the_solve_under_way,
        a_shared_answer_serves_all_who_wait_and_all_who_come,
        a_join_wakes_an_overdue_solve,
        one_of_two_joined_claims_may_leave,
        a_joined_claim_costs_nothing,
        a_shared_answer_reported_bad_serves_nobody_else,
        a_thousand_claims_share_a_solve_and_the_next_opens_its_own,
        a_key_joins_its_own_claim_in_a_full_solve,
        all_joined_claims_fail_with_one_dead_letter,
    ],
    lease: [
        only_a_living_holder_gets_leases,
        a_lease_is_given_once,
        leases_come_oldest_first_and_limited,
        a_named_solve_is_leased_alone,
        a_named_solve_is_taken_from_the_dead_only,
        a_dead_holders_intent_becomes_ambiguous,
        a_dead_holders_task_is_taken_over_at_once,
        a_reply_that_comes_after_the_takeover_pays_for_nothing_more,
        a_task_recorded_by_a_clock_ahead_is_taken_over_too,
        a_dead_holders_solves_come_in_their_turn,
        a_dead_holders_backoff_is_kept,
        a_released_solve_is_free_at_once,
        a_released_intent_is_not_sent_again,
        a_solve_that_kills_its_holders_is_given_up,
    ],
    advance: [
        an_intent_is_written_once,
        an_old_fence_is_refused,
        a_holder_whose_lease_ended_is_refused,
        an_ambiguous_attempt_is_authorised_once,
        the_ambiguity_budget_is_the_whole_days,
        a_policy_of_never_refuses_to_authorise,
        a_solve_nobody_waits_for_is_written_off_not_authorised,
        writing_off_leaves_a_dead_letter,
        a_solve_that_ended_takes_no_decision,
    ],
    settle: [
        an_answer_serves_the_claim_it_was_solved_for,
        facts_settled_twice_change_nothing,
        a_refused_attempt_is_queued_again,
        an_intent_is_disowned_by_its_own_nonce_only,
        a_refusal_for_good_leaves_a_dead_letter,
        a_task_that_ends_is_tried_again_and_costs_add_up,
        an_unknown_cost_stays_unknown,
        a_late_task_id_after_authorise_is_harvested_apart,
        an_orphans_answer_serves_the_claim_that_still_waits,
        a_late_task_id_resolves_an_ambiguous_attempt,
        two_solves_never_share_a_task,
        a_late_answer_closes_the_dead_letter,
        a_fact_about_an_attempt_never_made_changes_nothing,
        an_answer_that_died_on_the_way_fails_the_claim,
    ],
    stock: [
        a_withdrawn_claims_token_serves_the_next,
        an_answer_nobody_waits_for_is_stocked_once,
        the_first_to_die_is_handed_out_first,
        nothing_is_handed_out_with_less_than_ten_seconds_left,
        a_fetch_hands_out_the_same_token_again,
        a_fetch_after_expiry_returns_nothing_and_is_recorded_once,
        an_unsent_solve_ends_with_its_claim,
        a_sent_attempt_without_claims_is_not_tried_again,
        an_unfetched_token_goes_to_the_oldest_waiting_claim,
        a_fetched_token_stays_with_its_claim,
    ],
    sweep: [
        an_unsent_solve_dies_at_the_deadline,
        account_trouble_is_named_in_the_claim_and_its_dead_letter,
        a_sent_solve_goes_on_after_the_deadline_and_closes_its_dead_letter,
        an_ambiguous_solve_keeps_its_stage_at_the_deadline,
        a_token_not_fetched_by_the_deadline_serves_the_next,
        a_token_that_died_unfetched_is_wasted_once,
        a_claim_lapses_with_its_token_whoever_notices,
        a_token_that_outlives_the_deadline_is_handed_on_and_not_wasted,
        a_token_that_died_in_stock_is_wasted,
        a_shared_answer_that_aged_out_is_not_wasted,
        a_reused_key_outlives_its_first_claim,
        a_sweep_is_limited,
        old_records_are_dropped_and_numbers_go_on,
    ],
    challenges: [
        an_open_dead_letter_keeps_its_challenge,
        a_revived_dead_letter_drops_its_challenge_when_its_successor_ended,
        a_dead_letter_that_was_answered_late_drops_its_challenge,
        a_dead_letter_that_is_opened_again_later_still_has_its_challenge,
        a_claim_that_lapses_after_the_challenge_is_gone_gets_a_dead_letter,
        a_task_that_is_still_polled_keeps_its_challenge,
        a_purged_dead_letter_has_no_challenge,
    ],
    dead_letters: [
        a_revived_dead_letter_keeps_its_key,
        ten_equal_dead_letters_make_one_attempt,
        a_dead_letter_is_revived_once_however_many_revive_it,
        dead_letters_of_different_keys_are_revived_separately,
        a_paid_task_is_waited_for_rather_than_paid_again,
        a_revived_dead_letter_is_served_from_stock,
        a_revived_dead_letter_that_fails_again_keeps_its_history,
        an_awaited_task_that_fails_reopens_its_dead_letter,
        all_claims_of_a_shared_dead_letter_are_revived,
        a_revival_keeps_to_the_budget,
        a_dead_letter_is_revived_for_the_workers_that_may_open_a_solve,
        claims_of_workers_that_are_gone_stay_dead,
        a_revival_that_meets_account_trouble_reopens_its_dead_letter,
        a_key_reused_since_is_not_taken_back,
        a_purged_dead_letter_is_gone_and_recorded,
        dead_letters_are_filtered,
        a_queued_solve_that_is_too_late_is_dropped,
        a_solve_with_a_later_deadline_is_kept,
        account_trouble_drops_a_solve_that_can_be_revived,
        a_claim_that_no_solve_can_serve_in_time_is_refused,
    ],
    lapse: [
        an_empty_account_leaves_dead_letters_that_are_revived_and_served,
        dead_letters_are_listed_and_purged_by_class,
        a_pause_is_the_reason_of_what_lapses_under_it,
        what_may_have_been_paid_for_is_no_lapsed_dead_letter,
        every_claim_that_leaves_a_shared_solve_unpaid_is_in_its_dead_letter,
        a_shared_answer_that_comes_after_all_closes_the_dead_letter,
        a_shared_solve_that_fails_later_makes_its_dead_letter_a_failure,
        a_revival_that_lapses_when_its_dead_letter_is_gone_gets_its_own,
    ],
    promote: [
        a_live_claim_replaces_a_revived_claim_nobody_waits_for,
        a_live_claim_waits_for_a_revived_task_that_is_paid,
        a_token_nobody_waited_for_serves_the_next_claim,
        a_token_nobody_waited_for_serves_a_waiting_claim,
        a_returned_token_goes_to_the_waiting_claim,
        a_live_claim_that_is_too_late_leaves_the_revived_one_alone,
        a_claim_with_the_key_of_a_revived_claim_promotes_it,
        a_revived_claim_with_a_callback_keeps_its_own_solve,
        a_claim_that_joins_a_revived_image_promotes_it,
    ],
    pools: [
        a_standing_order_is_kept_and_changed,
        a_pool_orders_what_it_is_short_of_and_no_more,
        orders_are_bounded_by_the_waste_allowed,
        served_tokens_earn_new_orders,
        dead_tokens_count_as_wasted_before_they_are_swept,
        a_refill_serves_the_waiting_claim_or_the_next,
        one_living_holder_controls_a_pool,
        a_dead_controller_is_replaced,
        four_holders_order_as_one,
        tokens_of_withdrawn_claims_count_as_stock,
        an_order_that_was_not_sent_in_time_leaves_nothing,
        a_lost_reply_of_a_refill_is_written_off,
        announced_demand_may_be_bought,
        a_thousand_takers_of_five_hundred_tokens,
        a_token_refused_late_raises_the_margin,
        a_report_counts_once,
        memos_are_found_by_their_beginning,
        a_pool_shows_its_usable_tokens,
    ],
    outbox: [
        the_end_of_a_claim_is_announced_once,
        a_callback_is_tried_again_until_it_is_taken,
        a_callback_is_dropped_after_a_day,
        a_later_end_replaces_one_not_yet_announced,
        a_stocked_claim_is_announced_too,
        the_outbox_is_limited_and_in_order,
        the_text_of_a_token_is_dropped_when_it_expires,
        a_callback_address_is_dropped_once_nobody_needs_it,
        an_archive_gets_no_secrets,
    ],
    archive: [
        an_archive_has_the_same_history_as_its_store,
        an_archive_batch_written_twice_changes_nothing,
        one_of_two_concurrent_archive_writes_succeeds,
        a_store_that_lost_writes_is_archived_from_the_beginning,
        an_older_copy_of_a_claim_does_not_replace_a_newer_one,
        a_purged_dead_letter_leaves_the_archive,
        an_archive_keeps_its_history_for_ninety_days,
        archived_records_are_dropped_a_day_after_their_end,
        records_that_are_not_archived_stay,
        an_archive_of_another_ledger_lets_nothing_go,
        a_dead_letter_keeps_its_claims,
        a_store_without_its_archive_keeps_its_own_history_again,
    ],
    audit: [
        every_entry_is_chained_to_the_one_before,
        a_chain_goes_on_when_its_beginning_is_dropped,
        an_archive_has_the_hashes_of_its_store,
        a_chain_is_read_in_pieces,
        what_an_admin_does_is_written_with_the_change,
        what_a_worker_does_is_not_an_admins_action,
        an_action_that_changes_nothing_leaves_no_entry,
        the_audit_trail_is_filtered_and_paged,
        a_deleted_entry_leaves_the_audit_trail,
    ],
    records: [
        history_is_paged_newest_first,
        history_is_filtered,
        a_worker_sees_its_own,
        a_worker_sees_no_claims_of_others_that_share_its_solve,
        an_opened_solve_leaves_the_names_of_its_parameters,
        active_lists_what_is_under_way,
        totals_are_by_day_and_worker,
        a_worker_gets_its_own_totals_of_every_day,
        dead_letters_are_listed_and_found,
        a_claim_is_explained_in_order,
        an_explanation_does_not_mention_other_joined_claims,
        the_ledger_is_read_in_pieces,
        spending_is_by_day_and_worker,
        notes_are_entries,
    ],
    repeats: [
        a_token_fetched_again_and_again_is_one_entry,
        a_key_repeated_again_and_again_is_one_entry_and_counted_right,
        the_counts_of_a_claim_go_with_the_claim,
        five_claims_of_one_task_make_one_report_to_the_provider,
        unknown_kinds_share_one_row_of_the_totals,
        a_lease_leaves_the_pictures_in_the_store,
        a_renewal_counts_the_living_holders,
        a_gateway_that_is_restarted_again_and_again_counts_once,
    ],
    concurrency: [
        fifty_callers_with_one_key_open_one_solve,
        twenty_callers_with_a_budget_of_one_open_one_solve,
        two_keys_never_share_an_exclusive_token,
        ten_holders_never_get_the_same_lease,
        fifty_fetches_of_one_token_are_one_claims,
        one_image_from_fifty_callers_is_one_solve,
    ],
};
